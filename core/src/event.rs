//! Events: the only decoder, from a record to a [`LikeEvent`] or a [`Rejection`].
//!
//! It never panics and never guesses: what it does not accept is rejected for a reason from a closed list.

mod decode;
mod rejection;
mod routing;

use std::borrow::Cow;

use serde::Serialize;

pub use decode::{decode, decode_value};
pub use rejection::{Field, Rejection};
pub use routing::{KeyScheme, Routing, UnknownKeyScheme, partition_of};

use crate::ids::{PostId, UserId};
use crate::time::UnixMillis;

/// The largest event value, in bytes.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// What the user did. Not a toggle: an action repeated changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The row is to be there.
    Like,
    /// The row is to be gone.
    Unlike,
}

/// One user's like or unlike of one post, with valid ids. A decoded one borrows from its record: only an id written with
/// escapes is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikeEvent<'a> {
    post: Cow<'a, str>,
    user: Cow<'a, str>,
    pub action: Action,
    /// When, as the producer states it; the record's own time otherwise.
    pub at: UnixMillis,
}

impl<'a> LikeEvent<'a> {
    /// An event to send.
    pub fn new(post: &'a PostId, user: &'a UserId, action: Action, at: UnixMillis) -> Self {
        Self { post: Cow::Borrowed(post.as_str()), user: Cow::Borrowed(user.as_str()), action, at }
    }

    pub fn post(&self) -> &str {
        &self.post
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    /// The event as a record's value.
    pub fn encode(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Wire<'a> {
            post_id: &'a str,
            user_id: &'a str,
            action: Action,
            ts: UnixMillis,
        }
        let wire = Wire { post_id: &self.post, user_id: &self.user, action: self.action, ts: self.at };
        serde_json::to_vec(&wire).expect("strings and integers always serialise")
    }
}
