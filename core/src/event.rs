//! What a producer says: the only decoder of events, from a record's bytes to a [`LikeEvent`] or a [`Rejection`].
//!
//! It never panics and never guesses: what it does not accept is rejected for a reason from a closed list, and kept.

mod decode;
mod rejection;
mod routing;

use std::borrow::Cow;

use serde::Serialize;

pub use decode::decode;
pub use rejection::{Field, Rejection};
pub use routing::{KeyScheme, UnknownKeyScheme, partition_of};

use crate::ids::{PostId, UserId};
use crate::time::UnixMillis;

/// The largest event value, in bytes.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// What the user did. Absolute, not a toggle: saying it twice changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The row is to be there.
    Like,
    /// The row is to be gone.
    Unlike,
}

/// One user's like or unlike of one post; its ids are known to be valid.
///
/// Decoded, it borrows from the record where it can: only an id written with escapes is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikeEvent<'a> {
    post: Cow<'a, str>,
    user: Cow<'a, str>,
    /// What was done.
    pub action: Action,
    /// When, as the producer states it; otherwise the record's own time.
    pub at: UnixMillis,
}

impl<'a> LikeEvent<'a> {
    /// An event to send.
    pub fn new(post: &'a PostId, user: &'a UserId, action: Action, at: UnixMillis) -> Self {
        Self { post: Cow::Borrowed(post.as_str()), user: Cow::Borrowed(user.as_str()), action, at }
    }

    /// The post's id.
    pub fn post(&self) -> &str {
        &self.post
    }

    /// The user's id.
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
