//! The closed list of reasons why the consumer does not apply a Kafka record as an event. Dead letters, metrics and
//! `tally dlq list` use their names.

use std::fmt;

use thiserror::Error;

use super::{MAX_AMOUNT, MAX_EVENT_BYTES};
use crate::definitions::{MemberField, SubjectField};
use crate::ids::BadId;

/// A field that an event must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The field that names the subject.
    Subject(SubjectField),
    User,
    Action,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Subject(field) => field.as_str(),
            Self::User => "user_id",
            Self::Action => "action",
        })
    }
}

/// Why a record is not applied. It is data, not an error: the record is finished once the dead-letter topic has
/// acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum Rejection {
    /// The record is a tombstone or has an empty value.
    #[error("the value is empty")]
    EmptyValue,
    /// More than [`MAX_EVENT_BYTES`].
    #[error("the value has {0} bytes, more than {MAX_EVENT_BYTES}")]
    TooLarge(usize),
    /// Bytes that are not UTF-8.
    #[error("the value is not UTF-8 from byte {0}")]
    NotUtf8(usize),
    /// Text that is not one JSON document.
    #[error("the value is not JSON: {0}")]
    NotJson(String),
    /// JSON, but no object.
    #[error("the value is JSON but not an object")]
    NotAnObject,
    /// A required field is absent.
    #[error("{0} is missing")]
    MissingField(Field),
    /// `post_id` is not a valid id; `None` where it is not a text.
    #[error("post_id: {}", id_fault(*.0))]
    BadPostId(Option<BadId>),
    /// `user_id` is not a valid id; `None` where it is not a text.
    #[error("user_id: {}", id_fault(*.0))]
    BadUserId(Option<BadId>),
    /// `hashtag` is not a valid id; `None` where it is not a text.
    #[error("hashtag: {}", id_fault(*.0))]
    BadHashtag(Option<BadId>),
    /// The member of a set other than likes is not a valid id; `None` where it is absent or not a text.
    #[error("{} names the member: {}", .0.as_str(), id_fault(*.1))]
    BadMember(MemberField, Option<BadId>),
    /// No counter has this `action`; `None` where it is not a text.
    #[error("action: {}", action_fault(.0.as_deref()))]
    BadAction(Option<Box<str>>),
    /// `n` is not a whole number from 1 to [`MAX_AMOUNT`].
    #[error("n is not a whole number from 1 to {MAX_AMOUNT}")]
    BadAmount,
    /// `ts` is not a whole number of milliseconds since the epoch, up to the year 9999.
    #[error("ts is not a whole number of milliseconds since the epoch, up to the year 9999")]
    BadTimestamp,
    /// A CloudEvents envelope of another version or without the event as its `data`.
    #[error("CloudEvents envelope: {0}")]
    BadEnvelope(&'static str),
    /// The table does not accept this valid event; the text is the store's.
    #[error("refused by the store: {0}")]
    RefusedByStore(String),
    /// A valid event lies in another partition than its key says, and a routed event has written its row. Which of the
    /// two is later is unknown.
    #[error("in another partition than its key says, and an event from that one is in")]
    Misrouted,
}

impl Rejection {
    /// All reasons, by name.
    pub const REASONS: [&'static str; 16] = [
        "empty_value",
        "too_large",
        "not_utf8",
        "not_json",
        "not_an_object",
        "missing_field",
        "bad_post_id",
        "bad_user_id",
        "bad_hashtag",
        "bad_member",
        "bad_action",
        "bad_amount",
        "bad_timestamp",
        "bad_envelope",
        "refused_by_store",
        "misrouted",
    ];

    /// Returns the reason's name: a metric label and a dead-letter header.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::EmptyValue => "empty_value",
            Self::TooLarge(_) => "too_large",
            Self::NotUtf8(_) => "not_utf8",
            Self::NotJson(_) => "not_json",
            Self::NotAnObject => "not_an_object",
            Self::MissingField(_) => "missing_field",
            Self::BadPostId(_) => "bad_post_id",
            Self::BadUserId(_) => "bad_user_id",
            Self::BadHashtag(_) => "bad_hashtag",
            Self::BadMember(..) => "bad_member",
            Self::BadAction(_) => "bad_action",
            Self::BadAmount => "bad_amount",
            Self::BadTimestamp => "bad_timestamp",
            Self::BadEnvelope(_) => "bad_envelope",
            Self::RefusedByStore(_) => "refused_by_store",
            Self::Misrouted => "misrouted",
        }
    }
}

fn id_fault(fault: Option<BadId>) -> String {
    fault.map_or_else(|| "an id is a text".to_owned(), |fault| fault.to_string())
}

fn action_fault(action: Option<&str>) -> String {
    // The action may be a text of any length, and the reason goes into a header.
    let cut = |action: &str| action.chars().take(64).collect::<String>();
    action.map_or_else(|| "an action is a text".to_owned(), |action| format!("no counter has {:?}", cut(action)))
}
