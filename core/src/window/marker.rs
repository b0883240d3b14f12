//! The marker row: which run's window is open on a row key, as a chain of compare-and-set writes.
//!
//! The row is never deleted, and each put requires the marker its writer has read. A late copy of an opening marker
//! then finds another marker, and cannot open the window a second time.

use std::str::FromStr;

use thiserror::Error;

use super::WindowRun;

/// Which end of its window a marker stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The window is open: `L`.
    Low,
    /// The window is closed: `H`.
    High,
}

/// A text that is no phase.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a phase is L or H")]
pub struct UnknownPhase;

impl Phase {
    /// The phase as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "L",
            Self::High => "H",
        }
    }
}

impl FromStr for Phase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> Result<Self, UnknownPhase> {
        match text {
            "L" => Ok(Self::Low),
            "H" => Ok(Self::High),
            _ => Err(UnknownPhase),
        }
    }
}

/// The marker of a row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The window.
    pub run: WindowRun,
    /// The end of its window.
    pub phase: Phase,
}

impl Marker {
    /// The marker row's sort key: no user id begins with U+0001.
    pub const SORT_KEY: &'static str = "\u{1}recount";

    /// The opening marker of `run`.
    pub fn low(run: WindowRun) -> Self {
        Self { run, phase: Phase::Low }
    }

    /// The closing marker of `run`.
    pub fn high(run: WindowRun) -> Self {
        Self { run, phase: Phase::High }
    }

    /// The marker this one may replace: a closing marker only its own opening one, an opening marker any that was read.
    pub fn requires(self, read: Option<Self>) -> Option<Self> {
        match self.phase {
            Phase::Low => read,
            Phase::High => Some(Self::low(self.run)),
        }
    }
}

/// What a put that was refused, or whose outcome is unknown, has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPut {
    /// The marker stands.
    Stands,
    /// It does not stand yet, and may be put again under the same condition.
    Repeat,
    /// Another attempt's marker stands: begin a new run.
    Lost,
}

/// Decides from the marker now `found` what became of putting `ours`. An opening marker is put once only: refused or
/// lost on the way, the run begins anew, for the condition it was put under is no longer known to be the latest.
pub fn after_put(ours: Marker, found: Option<Marker>) -> AfterPut {
    if found == Some(ours) {
        AfterPut::Stands
    } else if ours.phase == Phase::High && found == Some(Marker::low(ours.run)) {
        AfterPut::Repeat
    } else {
        AfterPut::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closing_marker_replaces_its_own_opening_marker_and_no_other() {
        let (mine, other) = (WindowRun::from(1), WindowRun::from(2));
        assert_eq!(Marker::high(mine).requires(Some(Marker::low(other))), Some(Marker::low(mine)));
        assert_eq!(Marker::low(mine).requires(Some(Marker::high(other))), Some(Marker::high(other)));
        assert_eq!(Marker::low(mine).requires(None), None);
    }

    #[test]
    fn what_became_of_a_put_is_read_off_the_marker() {
        let (mine, other) = (WindowRun::from(1), WindowRun::from(2));
        assert_eq!(after_put(Marker::low(mine), Some(Marker::low(mine))), AfterPut::Stands);
        assert_eq!(after_put(Marker::low(mine), None), AfterPut::Lost);
        assert_eq!(after_put(Marker::high(mine), Some(Marker::high(mine))), AfterPut::Stands);
        assert_eq!(after_put(Marker::high(mine), Some(Marker::low(mine))), AfterPut::Repeat);
        assert_eq!(after_put(Marker::high(mine), Some(Marker::low(other))), AfterPut::Lost);
    }
}
