//! Reads one partition of another Region's topic `counts` for the change-streamer here: decides which of that Region's
//! counts to store, and which standing (up to when they are complete) to believe.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use super::CLOCKS;
use super::message::{Told, ToldMessage};
use crate::cached::{StandingAt, Value};
use crate::changes::DeploymentId;
use crate::ids::{CounterId, Region};
use crate::time::UnixMillis;
use crate::topic::{Offset, TopicId};

/// How old the last message may be before the reader assumes that entries may be missing. Less than the topic's
/// `min.compaction.lag.ms`, by more than clocks may differ.
pub const LAG: Duration = Duration::from_secs(600);

/// The reader of a partition of a Region's topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    region: Region,
    position: RemotePosition,
    pending: BTreeMap<CounterId, Value>,
}

/// How far a partition was read, and what is known at that offset. A reader that begins at an older position arrives
/// at the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemotePosition {
    /// The topic whose offsets these are.
    pub topic: TopicId,
    /// When the deployment last adopted other tables. A position with another value is of other tables; these lack its
    /// entries.
    pub adopted: Option<UnixMillis>,
    /// Everything before this offset is in the stored entries.
    pub next: Offset,
    /// When the last message that was read was published.
    pub said: UnixMillis,
    /// Entries that were published until then may be missing.
    pub behind: UnixMillis,
    /// The deployment that publishes the topic, once something was read.
    pub deployment: Option<DeploymentId>,
    /// The topic that the messages were published in, once something was read.
    pub source: Option<TopicId>,
    /// The standing of the entries; `None` until the reader believes one.
    pub standing: Option<StandingAt>,
}

/// What to write: the entries first, then the position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteFlush {
    /// Entries by their [keys](CounterId::in_region). Each is put where the stored one has an earlier version or is
    /// absent, so repeating it is safe.
    pub entries: Vec<(CounterId, Value)>,
    /// The position of the reader behind these entries.
    pub position: RemotePosition,
}

/// The message belongs to another Region, deployment or topic than the earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Another {
    /// It names another Region.
    #[error("it is of the Region `{0}`: correct the mirror or --remote, and recreate the copy")]
    Region(Region),
    /// It was published in another topic.
    #[error("it was published in another topic than those before, or that topic lost its end: recreate the copy")]
    Topic,
    /// It names another deployment.
    #[error("it is of the deployment {}, and those before are of {}: a Region that is built anew needs a new name", .found.0, .known.0)]
    Deployment {
        /// The deployment of the message.
        found: DeploymentId,
        /// The deployment of the messages before.
        known: DeploymentId,
    },
}

impl RemotePosition {
    /// Returns the position at the beginning of a topic.
    pub fn start(topic: TopicId, at: Offset) -> Self {
        let (said, behind) = (UnixMillis(0), UnixMillis(0));
        Self { topic, adopted: None, next: at, said, behind, deployment: None, source: None, standing: None }
    }
}

impl Remote {
    /// Goes on from a position in the topic of `region`.
    pub fn new(region: Region, position: RemotePosition) -> Self {
        Self { region, position, pending: BTreeMap::new() }
    }

    /// Returns the offset of the next message to read.
    pub fn next(&self) -> Offset {
        self.position.next
    }

    /// Returns how many entries are waiting to be written.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes the message at `at`, which was read at `now` by the store's clock.
    ///
    /// # Errors
    /// The message is of another Region, or of another deployment or topic than those before. Nothing is taken then.
    pub fn take(&mut self, at: Offset, now: UnixMillis, message: ToldMessage) -> Result<(), Another> {
        let ToldMessage { deployment, region, topic, said, told, .. } = message;
        if region != self.region {
            return Err(Another::Region(region));
        }
        let known = self.position.deployment.get_or_insert_with(|| deployment.clone());
        if *known != deployment {
            return Err(Another::Deployment { found: deployment, known: known.clone() });
        }
        let position = &mut self.position;
        // A copy may lack the beginning of a topic that was created anew, or what replaced a lost end.
        if *position.source.get_or_insert_with(|| topic.clone()) != topic {
            return Err(Another::Topic);
        }
        if now.since(position.said) >= LAG {
            // Entries between the last message and this one may be compacted away. Their successors were published by
            // now.
            position.behind = now;
        }
        position.said = position.said.max(said);
        position.next = at.next();
        match told {
            Told::Counted(counter, value) => {
                let entry = self.pending.entry(counter.in_region(&region)).or_insert(value);
                *entry = entry.later(value);
            }
            Told::Stated(stated) => {
                let is_whole = said.since(position.behind) > CLOCKS;
                let is_newer = position.standing.as_ref().is_none_or(|known| known.at < stated.at);
                if is_whole && is_newer {
                    position.standing = Some(stated);
                }
            }
        }
        Ok(())
    }

    /// Returns what to write now, and forgets the entries.
    pub fn flush(&mut self) -> RemoteFlush {
        let entries = std::mem::take(&mut self.pending).into_iter().collect();
        RemoteFlush { entries, position: self.position.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::{Place, Standing};

    fn remote() -> Remote {
        let region = Region::new("eu").expect("a name");
        Remote::new(region, RemotePosition::start(TopicId("t".into()), Offset(0)))
    }

    /// Returns a message with a standing.
    fn message(said: u64, at: u64) -> ToldMessage {
        let (region, topic) = (Region::new("eu").expect("a name"), TopicId("t".into()));
        let told = Told::Stated(StandingAt { at: Place::from_stored(at), standing: Standing::default() });
        ToldMessage { deployment: DeploymentId("d".into()), region, topic, partition: 0, said: UnixMillis(said), told }
    }

    const MINUTE: u64 = 60_000;

    /// Returns the place of the standing that a reader believes after messages, each as the times at which it was read
    /// and published, and its place.
    fn believed(messages: &[(u64, u64, u64)]) -> Option<u64> {
        let mut remote = remote();
        for (offset, (now, said, at)) in (0..).zip(messages) {
            remote.take(Offset(offset), UnixMillis(*now), message(*said, *at)).expect("a message of the Region");
        }
        remote.flush().position.standing.map(|standing| standing.at.stored())
    }

    /// Returns a message that is read when it is published.
    fn up(minute: u64, at: u64) -> (u64, u64, u64) {
        (minute * MINUTE, minute * MINUTE, at)
    }

    #[test]
    fn an_older_standing_takes_no_newer_ones_place() {
        assert_eq!(believed(&[up(100, 1), up(101, 7), up(102, 6)]), Some(7));
    }

    #[test]
    fn a_reader_that_was_far_behind_believes_only_what_was_published_since_it_noticed() {
        let with = |more: &[_]| believed(&[&[up(100, 1), up(101, 2)], more].concat());
        // The mirror stopped for twenty minutes: what it brings then may lack entries.
        let late = (121 * MINUTE, 102 * MINUTE, 3);
        assert_eq!(with(&[late, (121 * MINUTE, 121 * MINUTE - 1, 8)]), Some(2));
        assert_eq!(with(&[late, up(122, 9)]), Some(2), "between the two something may be missing");
        assert_eq!(with(&[late, up(122, 9), up(123, 10)]), Some(10));
        assert_eq!(with(&[(106 * MINUTE, 102 * MINUTE, 3)]), Some(3), "nothing is compacted after five minutes");
    }

    #[test]
    fn a_message_of_another_region_deployment_or_topic_is_refused() {
        let mut remote = remote();
        remote.take(Offset(0), UnixMillis(9), message(9, 1)).expect("a message of the Region");
        let us = Region::new("us").expect("a name");
        let foreign = ToldMessage { region: us.clone(), ..message(9, 2) };
        assert_eq!(remote.take(Offset(1), UnixMillis(9), foreign), Err(Another::Region(us)));
        let foreign = ToldMessage { deployment: DeploymentId("e".into()), ..message(9, 2) };
        assert!(matches!(remote.take(Offset(1), UnixMillis(9), foreign), Err(Another::Deployment { .. })));
        let foreign = ToldMessage { topic: TopicId("t+1".into()), ..message(9, 2) };
        assert_eq!(remote.take(Offset(1), UnixMillis(9), foreign), Err(Another::Topic));
        assert_eq!(remote.next(), Offset(1));
    }
}
