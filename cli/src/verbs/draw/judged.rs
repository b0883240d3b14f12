//! Decides what the events in Kafka (the log) prove about a *draw*, the record of who brought a counter to a threshold,
//! for `tally draw verify`. `Draw` reads the log: `Sum` adds up the events of a counter of amounts, and `Put` keeps
//! those of one member of a counter of members, such as a user who likes a post.

use tally_core::fault::Fault;
use tally_core::ids::MemberKey;
use tally_core::milestone::{Events, Milestone};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};

/// The record of a milestone has its time to the second.
const SECOND: u64 = 1_000;

/// Whether a draw is what the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is what the log says. The text names the winner.
    True(String),
    /// It is not what the log says, and why.
    False(String),
    /// The log cannot say it, or can no longer say it, and why.
    Gone(String),
    /// The log or the tables could not be read in several tries.
    Unread(Fault),
}

/// Where an event lies, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) partition: Partition,
    pub(super) offset: Offset,
    pub(super) at: UnixMillis,
}

/// Events of a sum, added up in order.
#[derive(Default)]
pub(super) struct Sum {
    total: i64,
    /// The event with which the total reached what was needed.
    winner: Option<Place>,
}

/// The events of the log that add one member to the set.
#[derive(Default)]
pub(super) struct Put {
    /// The last event that has a dead letter.
    pub(super) with_letter: Option<Place>,
    /// The latest event that is not younger than the record and has no dead letter.
    before: Option<Place>,
    /// An event that is younger than the record, by its producer's clock.
    after: Option<Place>,
    /// A partition that has lost its oldest records.
    pub(super) cut: Option<Partition>,
}

impl Sum {
    pub(super) fn add(&mut self, n: i64, needed: i64, place: impl Fn() -> Place) {
        self.total = self.total.saturating_add(n);
        if self.winner.is_none() && self.total >= needed {
            self.winner = Some(place());
        }
    }
}

/// Decides about the `events` of the winning write to a sum, by what they add up to in the log `with` and `without`
/// those that have a dead letter.
pub(super) fn judged(
    milestone: &Milestone,
    events: &Events,
    without: &Sum,
    with: &Sum,
    letters_are_lost: bool,
) -> Found {
    let gained = events.gained;
    for sum in [without, with] {
        if let Some(winner) = sum.winner.as_ref().filter(|_| sum.total == gained) {
            return Found::True(told(milestone, "event", Some(winner)));
        }
    }
    let found = format!("the events come to {} in the log, and to {gained} in the record", without.total);
    if without.total > gained && letters_are_lost {
        return Found::Gone(format!("{found}: the dead-letter topic has lost letters, and some may have had one"));
    }
    if without.total > gained {
        return Found::Gone(format!("{found}: some were skipped, or were put aside and have lost their letter"));
    }
    if with.total > gained {
        let all = with.total;
        return Found::Gone(format!("{found}: with those that have a dead letter to {all}, and some of those counted"));
    }
    Found::False(found)
}

impl Put {
    pub(super) fn take(&mut self, milestone: &Milestone, place: Place) {
        if place.at.0 >= milestone.at.0.saturating_add(SECOND) {
            self.after = Some(place);
        } else if self.before.as_ref().is_none_or(|found| found.at <= place.at) {
            self.before = Some(place);
        }
    }

    pub(super) fn found(
        self,
        milestone: &Milestone,
        member: &MemberKey,
        letters_lost_until: Option<UnixMillis>,
    ) -> Found {
        let Self { with_letter, before, after, cut } = self;
        match (before, after, cut) {
            (Some(place), ..) if letters_lost_until.is_some_and(|until| place.at <= until) => {
                Found::Gone("the dead-letter topic has lost letters, and the event may have had one".to_owned())
            }
            (Some(place), ..) => Found::True(told(milestone, &format!("member {member}"), Some(&place))),
            (None, ..) if let Some(Place { partition, offset, .. }) = with_letter => Found::Gone(format!(
                "{partition}/{offset} puts {member} there and has a dead letter, which does not say that it never counted"
            )),
            (None, Some(place), _) => {
                let Place { partition, offset, at } = place;
                Found::Gone(format!(
                    "{partition}/{offset} puts {member} there, and says {at}, which is after the record: a clock is wrong"
                ))
            }
            (None, None, Some(partition)) => {
                Found::Gone(format!("{partition} begins after offset 0, and no event of {member} is left"))
            }
            (None, None, None) => Found::False(format!("no event in the log puts {member} there")),
        }
    }
}

/// Returns a draw as one line of JSON, since an id may hold any character.
pub(super) fn told(milestone: &Milestone, who: &str, place: Option<&Place>) -> String {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        n: i64,
        winner: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        topic: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        partition: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        at: u64,
        version: u64,
    }
    let line = Line {
        n: milestone.n,
        winner: who,
        topic: place.map(|place| &*place.partition.topic),
        partition: place.map(|place| place.partition.index),
        offset: place.map(|place| place.offset.0),
        at: place.map_or(milestone.at, |place| place.at).0,
        version: milestone.version,
    };
    serde_json::to_string(&line).expect("strings and integers always serialise")
}
