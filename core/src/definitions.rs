//! The list of counters that a deployment keeps, such as likes and views: the name of each, whether it is a set of
//! members or a sum, and which actions of events change it.
//!
//! The list only grows at its end, and no entry ever changes.

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
    pub const ALL: [Self; 2] = [Self::Post, Self::Hashtag];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Post => "post_id",
            Self::Hashtag => "hashtag",
        }
    }
}

impl MemberField {
    pub const ALL: [Self; 5] = [Self::User, Self::Reply, Self::Event, Self::Post, Self::Member];

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

/// A kind of counter that each subject may have one of, such as the likes of a post.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Its name, and whether it is a set or a sum.
    pub name: CounterName,
    /// The action that adds a member or an amount.
    pub add: Box<str>,
    /// The action that removes a member or subtracts an amount; `None` where there is none.
    pub remove: Option<Box<str>>,
    /// The field that names what is counted.
    pub subject: SubjectField,
    /// The field that names the member; meaningless for a sum.
    pub member: MemberField,
    /// The only topic that has its events. `None`: the deployment's usual topic, which no definition names.
    pub topic: Option<Box<str>>,
}

/// What an action does to its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Adds a member or an amount.
    Add,
    /// Removes a member or subtracts an amount.
    Remove,
}

impl Definition {
    /// A name that no counter may have: live streams name events after counters, and use this name for milestones.
    pub const NOT_A_NAME: &'static str = "milestone";

    /// Returns the definition of likes, which each deployment has.
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

    /// Returns the direction in which `action` changes the counter, if it does.
    pub fn direction(&self, action: &str) -> Option<Direction> {
        if *self.add == *action {
            Some(Direction::Add)
        } else if self.remove.as_deref() == Some(action) {
            Some(Direction::Remove)
        } else {
            None
        }
    }

    /// Returns the action of a direction, if there is one.
    pub fn action(&self, direction: Direction) -> Option<&str> {
        match direction {
            Direction::Add => Some(&self.add),
            Direction::Remove => self.remove.as_deref(),
        }
    }

    /// Returns whether it is a set or a sum.
    pub fn kind(&self) -> CounterKind {
        self.name.kind()
    }

    /// Returns whether it makes sense to ask who was first at a threshold. A cell does not keep the order of its
    /// events, so it makes none for a sum with an action that subtracts.
    pub fn has_milestones(&self) -> bool {
        self.kind() == CounterKind::Set || self.remove.is_none()
    }
}

/// A deployment's counters in the order of definition, likes first. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definitions(Arc<[Definition]>);

/// Why a list is no list of definitions, or may not follow the present one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadDefinitions {
    /// An entry is malformed.
    #[error("counter {name:?}: {why}")]
    Entry { name: String, why: BadEntry },
    /// Two entries have the same name. Not even a set and a sum may share one.
    #[error("counter {0:?} is defined twice")]
    NamedTwice(String),
    /// Two entries have the same action.
    #[error("the action {action:?} belongs to {first:?} and to {second:?}")]
    ActionTwice {
        action: String,
        /// The counter that has the action.
        first: String,
        /// The counter that claims it, too.
        second: String,
    },
    /// A counter that is already defined is changed: what it has counted would lose its meaning.
    #[error("counter {0:?} stands already, and no part of it may change")]
    Changed(String),
}

impl Default for Definitions {
    fn default() -> Self {
        Self::likes_alone()
    }
}

impl Definitions {
    /// Returns the list of a deployment that defines nothing.
    pub fn likes_alone() -> Self {
        Self(Arc::new([Definition::likes()]))
    }

    /// Returns the list that `entries` state. They may leave out likes, which come first all the same.
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

    /// Returns this list with the missing ones of `wanted` at its end. Definitions that are in both must be equal;
    /// those that `wanted` leaves out stay.
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

    /// Returns every definition, likes first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Definition> {
        self.0.iter()
    }

    /// Returns the definition of `name`.
    pub fn named(&self, name: &str) -> Option<&Definition> {
        self.0.iter().find(|definition| definition.name.as_str() == name)
    }

    /// Returns the definition that `action` changes, and the direction.
    pub fn acted_on(&self, action: &str) -> Option<(&Definition, Direction)> {
        self.0.iter().find_map(|definition| Some((definition, definition.direction(action)?)))
    }

    /// Returns whether a definition names `topic`.
    pub fn name_topic(&self, topic: &str) -> bool {
        self.0.iter().any(|definition| definition.topic.as_deref() == Some(topic))
    }

    /// Returns the definitions whose events are in `topic`.
    pub fn said_in(&self, topic: &str) -> Self {
        let named = self.name_topic(topic);
        let here = |definition: &&Definition| match definition.topic.as_deref() {
            Some(its) => its == topic,
            None => !named,
        };
        Self(self.0.iter().filter(here).cloned().collect())
    }
}

/// Adds a definition at the end, if it shares neither name nor action with another.
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

    fn list(entries: &[Entry]) -> Definitions {
        Definitions::new(entries).unwrap()
    }

    fn four() -> [Entry; 3] {
        [
            Entry::set("retweets", "retweet", Some("unretweet")),
            Entry { member: Some("reply_id".into()), ..Entry::set("replies", "reply", Some("unreply")) },
            Entry::sum("views", "view", None),
        ]
    }

    #[test]
    fn likes_come_first_whether_they_are_stated_or_not() {
        let likes = Entry::set("likes", "like", Some("unlike"));
        let stated = list(&[std::slice::from_ref(&likes), &four()[..]].concat());
        assert_eq!(stated, list(&four()));
        assert_eq!(stated.iter().next().unwrap(), &Definition::likes());
        assert_eq!(list(&[]), Definitions::likes_alone());
        let other = Entry { remove: None, ..likes };
        assert_eq!(Definitions::new(&[other]), Err(BadDefinitions::Changed("likes".into())));
    }

    #[test]
    fn no_two_definitions_share_a_name_or_an_action() {
        let twice = [Entry::sum("views", "view", None), Entry::set("views", "see", None)];
        assert_eq!(Definitions::new(&twice), Err(BadDefinitions::NamedTwice("views".into())));
        for (add, remove) in [("like", None), ("see", Some("unlike"))] {
            let refused = Definitions::new(&[Entry::sum("views", add, remove)]).unwrap_err();
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
        assert!(stands.grown(&list(&[Entry::set("more", "retweet", None)])).is_err());
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
