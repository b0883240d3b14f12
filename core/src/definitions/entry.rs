//! The definition of a counter (such as likes or views) in texts, as people write it and as it is stored. Once they are
//! checked, an [`Entry`] becomes a [`Definition`].

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Definition, MemberField, SubjectField};
use crate::ids::{CounterKind, CounterName};

/// One entry of a list of definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// `[a-z][a-z0-9_]{0,31}`.
    pub name: String,
    /// `set` or `sum`.
    pub kind: String,
    /// The action that adds a member or an amount.
    pub add: String,
    /// The action that removes a member or subtracts an amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove: Option<String>,
    /// The field that names what is counted; by default `post_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The field that names the member of a set; by default `user_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The topic of its events, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
}

impl Entry {
    /// Returns a set of users for each post, with events in the deployment's topic.
    pub fn set(name: &str, add: &str, remove: Option<&str>) -> Self {
        Self::of("set", name, add, remove)
    }

    /// Returns a sum for each post, with events in the deployment's topic.
    pub fn sum(name: &str, add: &str, remove: Option<&str>) -> Self {
        Self::of("sum", name, add, remove)
    }

    fn of(kind: &str, name: &str, add: &str, remove: Option<&str>) -> Self {
        let (name, kind, add) = (name.to_owned(), kind.to_owned(), add.to_owned());
        Self { name, kind, add, remove: remove.map(str::to_owned), ..Self::default() }
    }
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadEntry {
    /// Its name is malformed.
    #[error("{0}")]
    Name(#[from] super::BadCounterName),
    #[error("live streams call an event of their own {0:?}")]
    NameTaken(String),
    /// Its kind is neither `set` nor `sum`.
    #[error("a kind is \"set\" or \"sum\", not {0:?}")]
    Kind(String),
    /// One of its actions is malformed.
    #[error("an action is 1 to 64 letters, digits, \"_\", \"-\" or \".\", not {0:?}")]
    Action(String),
    /// Both of its actions are the same.
    #[error("{0:?} cannot both add and remove")]
    OneAction(String),
    /// There is no such subject.
    #[error("a subject is \"post_id\" or \"hashtag\", not {0:?}")]
    Subject(String),
    /// There is no such member field.
    #[error("a member is \"user_id\", \"reply_id\", \"event_id\", \"post_id\" or \"member\", not {0:?}")]
    Member(String),
    /// It is a sum with a member.
    #[error("a sum has no member")]
    MemberOfSum,
    /// The member of the set is its subject, so it would have one row at most.
    #[error("the member cannot be the subject")]
    MemberIsSubject,
    /// Its topic is malformed.
    #[error("a topic is 1 to 249 letters, digits, \"_\", \"-\" or \".\", not {0:?}")]
    Topic(String),
}

impl TryFrom<&Entry> for Definition {
    type Error = BadEntry;

    fn try_from(entry: &Entry) -> Result<Self, BadEntry> {
        let kind = match entry.kind.as_str() {
            "set" => CounterKind::Set,
            "sum" => CounterKind::Sum,
            other => return Err(BadEntry::Kind(other.to_owned())),
        };
        let name = CounterName::new(&entry.name, kind)?;
        if entry.name == Definition::NOT_A_NAME {
            return Err(BadEntry::NameTaken(entry.name.clone()));
        }
        let add = action(&entry.add)?;
        let remove = entry.remove.as_deref().map(action).transpose()?;
        if remove.as_ref() == Some(&add) {
            return Err(BadEntry::OneAction(entry.add.clone()));
        }
        let subject = entry.subject.as_deref().map(subject).transpose()?.unwrap_or_default();
        if kind == CounterKind::Sum && entry.member.is_some() {
            return Err(BadEntry::MemberOfSum);
        }
        let member = entry.member.as_deref().map(member).transpose()?.unwrap_or_default();
        if kind == CounterKind::Set && member.as_str() == subject.as_str() {
            return Err(BadEntry::MemberIsSubject);
        }
        let topic = entry.topic.as_deref().map(topic).transpose()?;
        Ok(Self { name, add, remove, subject, member, topic })
    }
}

impl From<&Definition> for Entry {
    /// Leaves out fields that have their default.
    fn from(definition: &Definition) -> Self {
        let Definition { name, add, remove, subject, member, topic } = definition;
        let kind = match name.kind() {
            CounterKind::Set => "set",
            CounterKind::Sum => "sum",
        };
        Self {
            name: name.to_string(),
            kind: kind.to_owned(),
            add: add.to_string(),
            remove: remove.as_deref().map(str::to_owned),
            subject: (*subject != SubjectField::default()).then(|| subject.as_str().to_owned()),
            member: (*member != MemberField::default()).then(|| member.as_str().to_owned()),
            topic: topic.as_deref().map(str::to_owned),
        }
    }
}

fn action(text: &str) -> Result<Box<str>, BadEntry> {
    if is_plain(text, 64) { Ok(text.into()) } else { Err(BadEntry::Action(text.to_owned())) }
}

fn topic(text: &str) -> Result<Box<str>, BadEntry> {
    let dots = text.bytes().all(|byte| byte == b'.');
    if is_plain(text, 249) && !dots { Ok(text.into()) } else { Err(BadEntry::Topic(text.to_owned())) }
}

fn is_plain(text: &str, most: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=most).contains(&text.len()) && text.bytes().all(plain)
}

fn subject(text: &str) -> Result<SubjectField, BadEntry> {
    let found = SubjectField::ALL.into_iter().find(|field| field.as_str() == text);
    found.ok_or_else(|| BadEntry::Subject(text.to_owned()))
}

fn member(text: &str) -> Result<MemberField, BadEntry> {
    let found = MemberField::ALL.into_iter().find(|field| field.as_str() == text);
    found.ok_or_else(|| BadEntry::Member(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Entry)) -> BadEntry {
        let mut entry = Entry::set("views", "view", Some("unview"));
        change(&mut entry);
        Definition::try_from(&entry).unwrap_err()
    }

    #[test]
    fn an_entry_survives_being_read_and_written() {
        let full = Entry {
            subject: Some("hashtag".into()),
            member: Some("post_id".into()),
            topic: Some("views.v1".into()),
            ..Entry::set("views", "view", Some("unview"))
        };
        for entry in [Entry::sum("views", "view", None), full] {
            assert_eq!(Entry::from(&Definition::try_from(&entry).unwrap()), entry);
        }
    }

    #[test]
    fn each_way_to_be_wrong_is_named() {
        assert!(matches!(refused(|entry| entry.name = "Views".into()), BadEntry::Name(_)));
        assert!(matches!(refused(|entry| entry.name = "milestone".into()), BadEntry::NameTaken(_)));
        assert!(matches!(refused(|entry| entry.kind = "max".into()), BadEntry::Kind(_)));
        assert!(matches!(refused(|entry| entry.add = String::new()), BadEntry::Action(_)));
        assert!(matches!(refused(|entry| entry.remove = Some("a b".into())), BadEntry::Action(_)));
        assert!(matches!(refused(|entry| entry.remove = Some("view".into())), BadEntry::OneAction(_)));
        assert!(matches!(refused(|entry| entry.subject = Some("user_id".into())), BadEntry::Subject(_)));
        assert!(matches!(refused(|entry| entry.member = Some("user".into())), BadEntry::Member(_)));
        assert!(matches!(refused(|entry| entry.member = Some("post_id".into())), BadEntry::MemberIsSubject));
        assert!(matches!(refused(|entry| entry.topic = Some("..".into())), BadEntry::Topic(_)));
        let member = Entry { member: Some("user_id".into()), ..Entry::sum("views", "view", None) };
        assert_eq!(Definition::try_from(&member), Err(BadEntry::MemberOfSum));
    }
}
