//! Which counters a deployment has: what each is called, what its rows are, and which actions change it.
//!
//! The list only grows, at its end, and no entry ever changes.

mod entry;

use std::sync::Arc;

use thiserror::Error;

pub use entry::{BadEntry, Entry};

use crate::ids::{BadCounterName, CounterKind, CounterName};

/// The field of an event that names what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SubjectField {
    /// `post_id`.
    #[default]
    Post,
    /// `hashtag`.
    Hashtag,
}

/// The field of an event that names the member of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemberField {
    /// `user_id`.
    #[default]
    User,
    /// `reply_id`.
    Reply,
    /// `event_id`: each event counts once.
    Event,
    /// `post_id`.
    Post,
    /// `member`.
    Member,
}

impl SubjectField {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Post, Self::Hashtag];

    /// The field's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Post => "post_id",
            Self::Hashtag => "hashtag",
        }
    }
}

impl MemberField {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::User, Self::Reply, Self::Event, Self::Post, Self::Member];

    /// The field's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user_id",
            Self::Reply => "reply_id",
            Self::Event => "event_id",
            Self::Post => "post_id",
            Self::Member => "member",
        }
    }
}

/// One counter of each subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// What it is called, and what its rows are.
    pub name: CounterName,
    /// The action that puts a member, or adds an amount.
    pub add: Box<str>,
    /// The action that takes a member away, or an amount off; `None` where nothing does.
    pub remove: Option<Box<str>>,
    /// What is counted.
    pub subject: SubjectField,
    /// Who is a member; of no meaning to a sum.
    pub member: MemberField,
    /// The only topic that its actions are said in; `None`: each topic that no definition names.
    pub topic: Option<Box<str>>,
}

/// What an action does to its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Puts a member, or adds.
    Add,
    /// Takes a member away, or subtracts.
    Remove,
}

impl Definition {
    /// What no counter is called: in live streams, where events are named after counters, it is the event of a milestone.
    pub const NOT_A_NAME: &'static str = "milestone";

    /// What each deployment has.
    pub fn likes() -> Self {
        Self {
            name: CounterName::LIKES,
            add: "like".into(),
            remove: Some("unlike".into()),
            subject: SubjectField::Post,
            member: MemberField::User,
            topic: None,
        }
    }

    /// Which way `action` changes it; `None` where it does not.
    pub fn direction(&self, action: &str) -> Option<Direction> {
        if *self.add == *action {
            Some(Direction::Add)
        } else if self.remove.as_deref() == Some(action) {
            Some(Direction::Remove)
        } else {
            None
        }
    }

    /// The action of a direction, where it has one.
    pub fn action(&self, direction: Direction) -> Option<&str> {
        match direction {
            Direction::Add => Some(&self.add),
            Direction::Remove => self.remove.as_deref(),
        }
    }

    /// What its rows are.
    pub fn kind(&self) -> CounterKind {
        self.name.kind()
    }

    /// Whether who was first at a threshold has a meaning: a sum that can be taken from has no order of its events in its cells.
    pub fn has_milestones(&self) -> bool {
        self.kind() == CounterKind::Set || self.remove.is_none()
    }
}

/// A deployment's counters, in the order in which they were defined; likes come first. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definitions(Arc<[Definition]>);

/// Why a list is no list of definitions, or may not follow the one that stands.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadDefinitions {
    /// An entry is malformed.
    #[error("counter {name:?}: {why}")]
    Entry {
        /// What it calls itself.
        name: String,
        /// What is wrong with it.
        why: BadEntry,
    },
    /// Two entries have the same name; not even a set and a sum may share one.
    #[error("counter {0:?} is defined twice")]
    NamedTwice(String),
    /// Two entries have one action.
    #[error("the action {action:?} belongs to {first:?} and to {second:?}")]
    ActionTwice {
        /// The action.
        action: String,
        /// Whose it was.
        first: String,
        /// Who claims it as well.
        second: String,
    },
    /// An entry that stands is another now, or gone: what was counted by it would have no meaning.
    #[error("counter {0:?} stands already, and no part of it may change")]
    Changed(String),
}

impl Default for Definitions {
    fn default() -> Self {
        Self::likes_alone()
    }
}

impl Definitions {
    /// What a deployment has that defined nothing.
    pub fn likes_alone() -> Self {
        Self(Arc::new([Definition::likes()]))
    }

    /// The list that `entries` state. Likes may be left out, and are the first all the same.
    pub fn new(entries: &[Entry]) -> Result<Self, BadDefinitions> {
        let mut list = vec![Definition::likes()];
        for entry in entries {
            let bad = |why| BadDefinitions::Entry { name: entry.name.clone(), why };
            let definition = Definition::try_from(entry).map_err(bad)?;
            if definition.name == CounterName::LIKES {
                if definition != list[0] {
                    return Err(BadDefinitions::Changed(entry.name.clone()));
                }
                continue;
            }
            add(&mut list, definition)?;
        }
        Ok(Self(list.into()))
    }

    /// This list with what of `wanted` it does not have, at its end. What it has, and `wanted` states as well, must be the
    /// same; what `wanted` leaves out stays.
    pub fn grown(&self, wanted: &Self) -> Result<Self, BadDefinitions> {
        let mut list = self.0.to_vec();
        for definition in wanted.iter() {
            match self.named(definition.name.as_str()) {
                Some(stands) if stands == definition => {}
                Some(_) => return Err(BadDefinitions::Changed(definition.name.to_string())),
                None => add(&mut list, definition.clone())?,
            }
        }
        Ok(Self(list.into()))
    }

    /// Every definition, likes first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Definition> {
        self.0.iter()
    }

    /// The definition of `name`.
    pub fn named(&self, name: &str) -> Option<&Definition> {
        self.0.iter().find(|definition| definition.name.as_str() == name)
    }

    /// The definition that `action` changes, and which way.
    pub fn acted_on(&self, action: &str) -> Option<(&Definition, Direction)> {
        self.0.iter().find_map(|definition| Some((definition, definition.direction(action)?)))
    }

    /// What of these is said in `topic`.
    pub fn said_in(&self, topic: &str) -> Self {
        let named = self.0.iter().any(|definition| definition.topic.as_deref() == Some(topic));
        let here = |definition: &&Definition| match definition.topic.as_deref() {
            Some(its) => its == topic,
            None => !named,
        };
        if self.0.iter().all(|definition| here(&definition)) {
            return self.clone();
        }
        Self(self.0.iter().filter(here).cloned().collect())
    }
}

/// Adds a definition behind those that stand, where it shares neither name nor action with one of them.
fn add(list: &mut Vec<Definition>, new: Definition) -> Result<(), BadDefinitions> {
    for stands in &*list {
        if stands.name.as_str() == new.name.as_str() {
            return Err(BadDefinitions::NamedTwice(new.name.to_string()));
        }
        let mut actions = [Some(&*new.add), new.remove.as_deref()].into_iter().flatten();
        if let Some(action) = actions.find(|action| stands.direction(action).is_some()) {
            let (first, second) = (stands.name.to_string(), new.name.to_string());
            return Err(BadDefinitions::ActionTwice { action: action.to_owned(), first, second });
        }
    }
    list.push(new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: &str, add: &str, remove: Option<&str>) -> Entry {
        let mut entry = Entry { name: name.into(), kind: kind.into(), add: add.into(), ..Entry::default() };
        entry.remove = remove.map(Into::into);
        entry
    }

    fn list(entries: &[Entry]) -> Definitions {
        Definitions::new(entries).unwrap()
    }

    fn four() -> [Entry; 3] {
        [
            entry("retweets", "set", "retweet", Some("unretweet")),
            Entry { member: Some("reply_id".into()), ..entry("replies", "set", "reply", Some("unreply")) },
            entry("views", "sum", "view", None),
        ]
    }

    #[test]
    fn likes_come_first_whether_they_are_stated_or_not() {
        let likes = entry("likes", "set", "like", Some("unlike"));
        let stated = list(&[std::slice::from_ref(&likes), &four()[..]].concat());
        assert_eq!(stated, list(&four()));
        assert_eq!(stated.iter().next().unwrap(), &Definition::likes());
        assert_eq!(list(&[]), Definitions::likes_alone());
        let other = Entry { remove: None, ..likes };
        assert_eq!(Definitions::new(&[other]), Err(BadDefinitions::Changed("likes".into())));
    }

    #[test]
    fn an_action_names_its_definition_and_its_direction() {
        let list = list(&four());
        let of = |action| list.acted_on(action).map(|(found, direction)| (found.name.as_str(), direction));
        assert_eq!(of("like"), Some(("likes", Direction::Add)));
        assert_eq!(of("unreply"), Some(("replies", Direction::Remove)));
        assert_eq!(of("view"), Some(("views", Direction::Add)));
        assert_eq!(of("unview"), None);
    }

    #[test]
    fn no_two_definitions_share_a_name_or_an_action() {
        let twice = [entry("views", "sum", "view", None), entry("views", "set", "see", None)];
        assert_eq!(Definitions::new(&twice), Err(BadDefinitions::NamedTwice("views".into())));
        for (add, remove) in [("like", None), ("see", Some("unlike"))] {
            let refused = Definitions::new(&[entry("views", "sum", add, remove)]).unwrap_err();
            assert!(matches!(refused, BadDefinitions::ActionTwice { .. }), "{refused}");
        }
    }

    #[test]
    fn a_list_grows_at_its_end_and_nothing_that_stands_changes() {
        let [retweets, replies, views] = four();
        let stands = list(std::slice::from_ref(&retweets));
        let grown = stands.grown(&list(&[views.clone(), replies])).unwrap();
        let names: Vec<_> = grown.iter().map(|definition| definition.name.as_str()).collect();
        assert_eq!(names, ["likes", "retweets", "views", "replies"]);
        for changed in [
            Entry { remove: None, ..retweets.clone() },
            Entry { kind: "sum".into(), ..retweets.clone() },
            Entry { member: Some("member".into()), ..retweets.clone() },
            Entry { topic: Some("other".into()), ..retweets.clone() },
            Entry { subject: Some("hashtag".into()), ..retweets },
        ] {
            assert_eq!(stands.grown(&list(&[changed])), Err(BadDefinitions::Changed("retweets".into())));
        }
        assert!(stands.grown(&list(&[entry("more", "set", "retweet", None)])).is_err());
    }

    #[test]
    fn a_definition_with_a_topic_is_said_there_alone_and_the_others_everywhere_else() {
        let [retweets, _, views] = four();
        let all = list(&[retweets, Entry { topic: Some("views".into()), ..views }]);
        let names = |topic| all.said_in(topic).iter().map(|found| found.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names("views"), ["views"]);
        assert_eq!(names("likes"), ["likes", "retweets"]);
    }
}
