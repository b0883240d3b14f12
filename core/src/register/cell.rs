//! Cells, the rows of sums such as views: a cell holds what one Kafka partition has added to one counter. [`Adding`]
//! decides when the consumer reads and updates it.

use std::collections::VecDeque;

use super::Version;
use crate::topic::Offset;

/// The row of one counter and one partition: `n` has every event up to the version `to`, each exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub n: i64,
    /// The version of the last event that is in.
    pub to: Version,
}

/// A request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads the cell, with a consistent read.
    Read,
    /// Replaces the cell by `to` if its own `to` is still that of `from`, or if it is still absent. So a copy of the
    /// request is refused.
    Update { from: Option<Cell>, to: Cell },
}

/// The adding of one partition's events to one counter, from the partition's claim until it is left. One request is
/// under way at a time; events that come meanwhile wait for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Adding {
    /// The events that are not known to be in the cell, in the order of their versions.
    events: VecDeque<(Version, i64)>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    /// The cell has to be read.
    #[default]
    Unknown,
    Reading,
    /// The cell as it was last read or written.
    Known(Option<Cell>),
    Updating {
        to: Cell,
    },
}

impl Adding {
    /// Takes an event in. Returns whether it is in the cell already and so finished.
    pub fn take(&mut self, version: Version, amount: i64) -> bool {
        let is_in = matches!(self.stage, Stage::Known(Some(cell)) if version <= cell.to);
        if !is_in {
            self.events.push_back((version, amount));
        }
        is_in
    }

    /// Returns how many events are not known to be in the cell.
    pub fn gathered(&self) -> usize {
        self.events.len()
    }

    /// Returns the next request, if there is one to send. It is under way until [`read`](Self::read),
    /// [`stored`](Self::stored) or [`unclear`](Self::unclear) is called.
    pub fn step(&mut self) -> Option<Step> {
        let last = self.events.back()?.0;
        match self.stage {
            Stage::Reading | Stage::Updating { .. } => None,
            Stage::Unknown => {
                self.stage = Stage::Reading;
                Some(Step::Read)
            }
            Stage::Known(from) => {
                // A sum that was set to the limit by hand stays there.
                let n = from.map_or(0, |cell| cell.n);
                let n = self.events.iter().fold(n, |n, (_, amount)| n.saturating_add(*amount));
                let to = Cell { n, to: last };
                self.stage = Stage::Updating { to };
                Some(Step::Update { from, to })
            }
        }
    }

    /// Takes the cell, as it was read or as a refused update returned it. Returns the offsets of the events that are
    /// in it.
    pub fn read(&mut self, cell: Option<Cell>) -> impl Iterator<Item = Offset> + '_ {
        self.stage = Stage::Known(cell);
        let is_in = |(version, _): &(Version, i64)| cell.is_some_and(|cell| *version <= cell.to);
        let count = self.events.iter().take_while(|event| is_in(event)).count();
        self.events.drain(..count).map(|(version, _)| version.offset())
    }

    /// Notes that the update was carried out. Returns the offsets of the events that are in the cell.
    ///
    /// # Panics
    /// No update is under way.
    pub fn stored(&mut self) -> impl Iterator<Item = Offset> + '_ {
        let Stage::Updating { to } = self.stage else { panic!("no update is under way") };
        self.read(Some(to))
    }

    /// Notes that the request failed without showing the cell, or that its outcome is unknown. The next request reads.
    pub fn unclear(&mut self) {
        self.stage = Stage::Unknown;
    }
}
