//! What a runner hands to the machine of a partition, and what it carries out for it.

use std::sync::Arc;

use tally_core::changes::{BadMessage, DeploymentId};
use tally_core::fold::Position;
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset};

use crate::wire::Writer;
use crate::{BoardRules, Fold, Tick, Window, Written};

/// What a partition is and how it is listed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Whose log it is.
    pub deployment: DeploymentId,
    /// Which partition of the log of changes,
    pub partition: u32,
    /// and of how many.
    pub of: u32,
    /// What its messages are written as.
    pub writer: Writer,
    /// The windows.
    pub windows: Vec<Window>,
    /// How much of a board is kept.
    pub boards: BoardRules,
    /// The most regions that have boards of their own.
    pub regions: usize,
    /// The most [keys](Fold::keys), to begin with.
    pub keys: usize,
}

impl Setup {
    pub(super) fn fold(&self, moment: u64) -> Fold {
        Fold::new(&self.windows, self.boards, moment).with_regions(self.regions).with_keys(self.keys)
    }
}

/// A partition of the log, and what is stored of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// What the broker says of the log.
    pub log: Log,
    /// The generation of its topic.
    pub generation: u16,
    /// What the fold of the counters stored before that.
    pub position: Option<Position>,
}

impl Looked {
    /// The stored position, if it is one in this log and tells up to when everything is in.
    pub(super) fn usable(&self) -> Option<Position> {
        let is_usable = |Position { at, filter, .. }: &Position| {
            let is_there = (self.log.start..=self.log.end).contains(&at.offset());
            at.generation() >= self.generation && is_there && filter.standing().as_of.is_some()
        };
        self.position.clone().filter(is_usable)
    }
}

/// What the runner tells the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// What [`Effect::Look`] asked for.
    Looked(Box<Looked>),
    /// The first record of the time of [`Effect::Find`] or later; `None` where there is none.
    Found(Option<Offset>),
    /// What [`Effect::Open`] asked for is done.
    Opened,
    /// Records that follow on those before.
    Records(Arc<Records>),
    /// The position cannot be read, or may be that of another log.
    Broken,
    /// What [`Effect::Publish`] asked for is acknowledged, all of it.
    Published,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask for the log and what is stored of it, a while later if it was asked for before.
    Look {
        /// It was.
        again: bool,
    },
    /// Look for the first record that was written at this time or later.
    Find(UnixMillis),
    /// Read from here on.
    Open(Offset),
    /// Write this. Safe to repeat.
    Publish(Publication),
    /// The partition stands still, for a person to look at it.
    Halt(Alarm),
    /// For metrics and logs.
    Tell(Note),
}

/// A moment of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The boards that changed; all of them now and then.
    pub boards: Vec<Written>,
    /// The keys of boards that have nothing on them any more, as was written before: the topic may drop them.
    pub gone: Vec<String>,
    /// To be written once the boards are acknowledged.
    pub tick: Tick,
}

/// Why a partition stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The log is written in a layout that this build does not know.
    Version(u64),
    /// The log is that of another deployment.
    Deployment(String),
    /// A record of the log cannot be read.
    Malformed(String),
}

impl Alarm {
    /// Every name.
    pub const NAMES: &[&str] = &["version", "deployment", "malformed"];

    pub(super) fn of(bad: BadMessage) -> Self {
        match bad {
            BadMessage::Version(version) => Self::Version(version),
            BadMessage::Deployment(of) => Self::Deployment(of),
            BadMessage::Malformed(why) => Self::Malformed(why),
        }
    }

    /// The metric label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Version(_) => "version",
            Self::Deployment(_) => "deployment",
            Self::Malformed(_) => "malformed",
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A message was read.
    Read {
        /// Changes that count.
        taken: usize,
        /// Copies that do not.
        copies: usize,
    },
    /// A change came after its moment was published.
    Late,
    /// A loss was announced.
    Loss,
    /// What was read is made anew from the log.
    Anew,
    /// So many keys were forgotten, as there were too many.
    Shed(u64),
}
