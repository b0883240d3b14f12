//! Sums: what one partition adds to one counter.

use std::collections::VecDeque;

use super::Version;
use crate::topic::Offset;

/// The row of one counter and one partition: every event up to the version `to` is in `n`, exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub n: i64,
    /// The last event that is in.
    pub to: Version,
}

/// What is asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The cell, consistently.
    Read,
    /// The cell becomes `to` if its own `to` is still that of `from`, or if it is still absent. A copy of it is refused.
    Update { from: Option<Cell>, to: Cell },
}

/// The machine of one counter and one partition, from the partition's claim until it is left. One step is under way at a time;
/// the events that come meanwhile gather.
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
    /// The cell as it was read or written last.
    Known(Option<Cell>),
    Updating {
        to: Cell,
    },
}

impl Adding {
    /// Takes in an event. Whether it is in the cell already: then it is finished.
    pub fn take(&mut self, version: Version, amount: i64) -> bool {
        let is_in = matches!(self.stage, Stage::Known(Some(cell)) if version <= cell.to);
        if !is_in {
            self.events.push_back((version, amount));
        }
        is_in
    }

    /// How many events are not known to be in the cell.
    pub fn gathered(&self) -> usize {
        self.events.len()
    }

    /// What to ask next. It is under way until it is answered.
    pub fn step(&mut self) -> Option<Step> {
        let last = self.events.back()?.0;
        match self.stage {
            Stage::Reading | Stage::Updating { .. } => None,
            Stage::Unknown => {
                self.stage = Stage::Reading;
                Some(Step::Read)
            }
            Stage::Known(from) => {
                // A sum that was brought to the limit by hand stays there.
                let n = from.map_or(0, |cell| cell.n);
                let n = self.events.iter().fold(n, |n, (_, amount)| n.saturating_add(*amount));
                let to = Cell { n, to: last };
                self.stage = Stage::Updating { to };
                Some(Step::Update { from, to })
            }
        }
    }

    /// The cell was read, or an update was refused and the answer shows the cell. Answers the offsets of the events that are
    /// in.
    pub fn read(&mut self, cell: Option<Cell>) -> impl Iterator<Item = Offset> + '_ {
        self.stage = Stage::Known(cell);
        let is_in = |(version, _): &(Version, i64)| cell.is_some_and(|cell| *version <= cell.to);
        let count = self.events.iter().take_while(|event| is_in(event)).count();
        self.events.drain(..count).map(|(version, _)| version.offset())
    }

    /// The update was carried out. Answers the offsets of the events that are in.
    ///
    /// # Panics
    /// No update is under way.
    pub fn stored(&mut self) -> impl Iterator<Item = Offset> + '_ {
        let Stage::Updating { to } = self.stage else { panic!("no update is under way") };
        self.read(Some(to))
    }

    /// The step was refused without showing the cell, or it is not known what became of it.
    pub fn unclear(&mut self) {
        self.stage = Stage::Unknown;
    }
}
