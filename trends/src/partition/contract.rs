//! The types through which two parts of `tally-trends` talk: the state of a partition (`partition.rs`), which decides
//! what to read and publish, and the worker (`worker.rs`), which does it.

use std::time::Duration;

use tally_core::changes::DeploymentId;
use tally_core::fold::Position;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, TopicId};

use super::reading::Reading;
use crate::window::first_moment;
use crate::wire::Writer;
use crate::{Fold, Rules, Tick, Window, Written};

/// How much further back than its windows a partition reads. It covers the differences between the clocks of machines,
/// and more.
const SLACK: Duration = Duration::from_secs(2 * 3600);

/// The identity of a partition and the rules of its lists.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The deployment that the log belongs to.
    pub deployment: DeploymentId,
    /// The partition of the log of changes.
    pub partition: u32,
    /// The number of partitions.
    pub of: u32,
    /// The writer that its messages name.
    pub writer: Writer,
    /// The rules of the lists. The limit of [keys](Fold::keys) is the initial one.
    pub rules: Rules,
}

impl Setup {
    pub(super) fn fold(&self, moment: u64) -> Fold {
        let Rules { windows, boards, regions, keys } = &self.rules;
        Fold::new(windows, *boards, moment).with_regions(*regions).with_keys(*keys)
    }
}

/// The ends of the log, and the position stored for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The log as the broker describes it.
    pub log: Log,
    /// The generation of its topic.
    pub generation: u16,
    /// The position that the fold of the counters had stored before the broker was asked.
    pub position: Option<Position>,
}

impl Looked {
    /// Decides where to read: `here`, if that is in the log; else where the windows begin, if a position there or later
    /// is stored; else at the very beginning. Returns `None` if the log has lost its beginning and no position is
    /// stored: the fold of the counters will store one. `find` returns the first record of a time or later.
    ///
    /// # Errors
    /// Those of `find`.
    pub async fn begin<F>(
        self,
        here: Option<(TopicId, Offset)>,
        windows: &[Window],
        find: impl FnOnce(UnixMillis) -> F,
    ) -> anyhow::Result<Option<Begun>>
    where
        F: Future<Output = anyhow::Result<Option<Offset>>>,
    {
        let in_log =
            |(topic, at): &(TopicId, Offset)| *topic == self.log.topic && (self.log.start..=self.log.end).contains(at);
        if let Some((_, at)) = here.filter(in_log) {
            return Ok(Some(Begun { at, anew: None }));
        }
        if let Some(stored) = self.usable() {
            let moment = stored.filter.standing().as_of.and_then(|as_of| first_moment(0, as_of)).unwrap_or_default();
            let needed = needed(windows, moment);
            // If no message is that late, or the broker cannot search by time, the whole log is read.
            let from = find(needed).await?.unwrap_or_default().max(self.log.start);
            return Ok(Some(Begun::anew(moment, Reading::of_windows(self.log, from, needed, stored))));
        }
        Ok((self.log.start == Offset(0)).then(|| Begun::anew(0, Reading::of_all(self))))
    }

    /// Returns the stored position, if it is in this log and states up to when the log is complete.
    fn usable(&self) -> Option<Position> {
        let is_usable = |Position { at, filter, .. }: &Position| {
            let is_there = (self.log.start..=self.log.end).contains(&at.offset());
            at.generation() >= self.generation && is_there && filter.standing().as_of.is_some()
        };
        self.position.clone().filter(is_usable)
    }
}

/// Returns the time from which on the lists of `moment` need the log.
fn needed(windows: &[Window], moment: u64) -> UnixMillis {
    let longest = windows.iter().map(|window| moment - window.from(moment)).max().unwrap_or_default();
    UnixMillis(moment * 1000).minus(Duration::from_secs(longest).saturating_add(SLACK))
}

/// Where reading begins.
#[derive(Debug)]
pub struct Begun {
    /// The offset to open the log at.
    pub at: Offset,
    /// What is read anew, and from which moment on; `None` if reading goes on where it was.
    pub(super) anew: Option<(u64, Reading)>,
}

impl Begun {
    fn anew(moment: u64, reading: Reading) -> Self {
        Self { at: reading.position(), anew: Some((moment, reading)) }
    }
}

/// The messages of one moment of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The boards that changed; now and then all of them.
    pub boards: Vec<Written>,
    /// The keys of boards that are empty now and have been written as empty. Tombstones let the topic drop them.
    pub gone: Vec<String>,
    /// The tick, which is written once the boards are acknowledged.
    pub tick: Tick,
}

/// An event for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A message was read.
    Read {
        /// The changes that count.
        taken: usize,
        /// The copies of earlier changes, which do not count.
        copies: usize,
    },
    /// A change came after its moment was published.
    Late,
    /// A loss was announced or found.
    Loss,
    /// The partition starts again from the log.
    Anew,
    /// This many keys were forgotten because there were too many.
    Shed(u64),
}
