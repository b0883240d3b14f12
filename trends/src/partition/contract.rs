//! The interface between the state machine of a partition and the worker that runs it: inputs and effects.

use std::sync::Arc;

use tally_core::changes::{BadMessage, DeploymentId};
use tally_core::fold::Position;
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset};

use crate::wire::Writer;
use crate::{BoardRules, Fold, Tick, Window, Written};

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
    pub windows: Vec<Window>,
    /// The sizes of the boards.
    pub boards: BoardRules,
    /// The maximum number of regions that have boards of their own.
    pub regions: usize,
    /// The initial limit of [keys](Fold::keys).
    pub keys: usize,
}

impl Setup {
    pub(super) fn fold(&self, moment: u64) -> Fold {
        Fold::new(&self.windows, self.boards, moment).with_regions(self.regions).with_keys(self.keys)
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
    /// Returns the stored position, if it is in this log and states up to when the log is complete.
    pub(super) fn usable(&self) -> Option<Position> {
        let is_usable = |Position { at, filter, .. }: &Position| {
            let is_there = (self.log.start..=self.log.end).contains(&at.offset());
            at.generation() >= self.generation && is_there && filter.standing().as_of.is_some()
        };
        self.position.clone().filter(is_usable)
    }
}

/// What the runner reports to the state machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The answer to [`Effect::Look`].
    Looked(Box<Looked>),
    /// The answer to [`Effect::Find`]: the first record of that time or later, if there is one.
    Found(Option<Offset>),
    /// [`Effect::Open`] is done.
    Opened,
    /// The next records.
    Records(Arc<Records>),
    /// The position cannot be read, or may belong to another log.
    Broken,
    /// [`Effect::Publish`] is done, and every message is acknowledged.
    Published,
}

/// What the state machine asks the runner to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask for the ends of the log and the stored position.
    Look {
        /// Whether this was asked before, so that the runner waits first.
        again: bool,
    },
    /// Find the first record that was written at this time or later.
    Find(UnixMillis),
    /// Read from this offset on.
    Open(Offset),
    /// Write these messages. Safe to repeat.
    Publish(Publication),
    /// Stop the partition until an operator acts.
    Halt(Alarm),
    /// Record this in metrics and logs.
    Tell(Note),
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

/// Why a partition was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The log has a format version that this build does not know.
    Version(u64),
    /// The log belongs to another deployment.
    Deployment(String),
    /// A record of the log cannot be read.
    Malformed(String),
}

impl Alarm {
    /// Every name, for the metric.
    pub const NAMES: &[&str] = &["version", "deployment", "malformed"];

    pub(super) fn of(bad: BadMessage) -> Self {
        match bad {
            BadMessage::Version(version) => Self::Version(version),
            BadMessage::Deployment(of) => Self::Deployment(of),
            BadMessage::Malformed(why) => Self::Malformed(why),
        }
    }

    /// Returns the value of the metric's label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Version(_) => "version",
            Self::Deployment(_) => "deployment",
            Self::Malformed(_) => "malformed",
        }
    }
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
