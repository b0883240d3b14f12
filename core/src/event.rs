//! Events: the only decoder, from a record to an [`Event`] or a [`Rejection`].
//!
//! An event's action names the definition of its counter, and the definition names the fields that the event needs. The
//! decoder never panics and never guesses: what it does not accept is rejected for a reason from a closed list.

mod decode;
mod encode;
mod rejection;
mod routing;

use std::borrow::Cow;

use serde::Serialize;

pub use decode::{decode, decode_value};
pub use encode::{Said, encode, encode_from};
pub use rejection::{Field, Rejection};
pub use routing::partition_of;

use crate::ids::{CounterName, PostId, Region, UserId};
use crate::time::UnixMillis;

/// The largest event value, in bytes.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// The greatest amount that one event adds or takes off.
pub const MAX_AMOUNT: i64 = 1_000_000;

/// What one event does to one counter, with valid ids. A decoded one borrows from its record: only an id written with escapes
/// is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Which counter of its subject.
    pub counter: CounterName,
    subject: Cow<'a, str>,
    /// What it does.
    pub deed: Deed<'a>,
    /// When, as the producer states it; the record's own time otherwise.
    pub at: UnixMillis,
    /// Where it comes from, as it was stated.
    region: Option<Cow<'a, str>>,
}

/// What an event does to its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed<'a> {
    /// A member of a set is to be there, or gone. Not a toggle: repeated, it changes nothing.
    Member {
        /// The member's id.
        id: Cow<'a, str>,
        /// Whether it is to be there.
        present: bool,
    },
    /// A sum gains so much; less than 0 is taken off. Repeated, it counts twice.
    Amount(i64),
}

impl Event<'_> {
    /// What is counted: a post's id, or another subject's.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The member that is put or taken away; `None` of a sum.
    pub fn member(&self) -> Option<&str> {
        match &self.deed {
            Deed::Member { id, .. } => Some(id),
            Deed::Amount(_) => None,
        }
    }

    /// The region that a member's event comes from; `None` where it states none, or something that is no region.
    pub fn region(&self) -> Option<Region> {
        self.member().and(self.region.as_deref()).and_then(Region::new)
    }

    /// Whether a member's event states something as its region that is none.
    pub fn has_bad_region(&self) -> bool {
        self.member().and(self.region.as_deref()).is_some_and(|region| !Region::is_one(region))
    }
}

/// What a user did to a post. Not a toggle: an action repeated changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The row is to be there.
    Like,
    /// The row is to be gone.
    Unlike,
}

/// One user's like or unlike of one post, to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikeEvent<'a> {
    post: &'a str,
    user: &'a str,
    pub action: Action,
    /// When.
    pub at: UnixMillis,
}

impl<'a> LikeEvent<'a> {
    /// An event to send.
    pub fn new(post: &'a PostId, user: &'a UserId, action: Action, at: UnixMillis) -> Self {
        Self { post, user, action, at }
    }

    /// The like or unlike that an event is; `None` of one about another counter.
    pub fn of(event: &'a Event<'_>) -> Option<Self> {
        let Deed::Member { id, present } = &event.deed else { return None };
        let action = if *present { Action::Like } else { Action::Unlike };
        let like = Self { post: &event.subject, user: id, action, at: event.at };
        (event.counter == CounterName::LIKES).then_some(like)
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
        let wire = Wire { post_id: self.post, user_id: self.user, action: self.action, ts: self.at };
        serde_json::to_vec(&wire).expect("strings and integers always serialise")
    }
}

impl<'a> From<LikeEvent<'a>> for Event<'a> {
    fn from(like: LikeEvent<'a>) -> Self {
        Self {
            counter: CounterName::LIKES,
            subject: Cow::Borrowed(like.post),
            deed: Deed::Member { id: Cow::Borrowed(like.user), present: like.action == Action::Like },
            at: like.at,
            region: None,
        }
    }
}
