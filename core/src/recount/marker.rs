//! The marker row: which run's window is open on a row key, as a chain of compare-and-set writes.
//!
//! The row is never deleted, and each put requires the marker its writer has read. A late copy of an opening marker
//! then finds another marker, and cannot open the window a second time.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::time::UnixMillis;

/// One attempt at an exact count: 128 random bits, so that no two attempts are ever taken for one. (What people call a
/// run, an audit with all its attempts, has an id that begins with its time.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u128);

/// A text that is no run id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a run id is 32 lower-case hexadecimal digits")]
pub struct BadRunId;

impl RunId {
    /// The id of a run beginning at `began`: ids in order are runs in order.
    pub fn beginning(began: UnixMillis, random: u64) -> Self {
        Self(u128::from(began.0) << 64 | u128::from(random))
    }
}

impl From<u128> for RunId {
    fn from(bits: u128) -> Self {
        Self(bits)
    }
}

impl FromStr for RunId {
    type Err = BadRunId;

    fn from_str(text: &str) -> Result<Self, BadRunId> {
        let hex = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !hex {
            return Err(BadRunId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| BadRunId)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

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
    /// The run.
    pub run: RunId,
    /// The end of its window.
    pub phase: Phase,
}

impl Marker {
    /// The marker row's sort key: no user id begins with U+0001.
    pub const SORT_KEY: &'static str = "\u{1}recount";

    /// The opening marker of `run`.
    pub fn low(run: RunId) -> Self {
        Self { run, phase: Phase::Low }
    }

    /// The closing marker of `run`.
    pub fn high(run: RunId) -> Self {
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
    /// Somebody else's marker stands: begin a new run.
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
        let (mine, other) = (RunId::from(1), RunId::from(2));
        assert_eq!(Marker::high(mine).requires(Some(Marker::low(other))), Some(Marker::low(mine)));
        assert_eq!(Marker::low(mine).requires(Some(Marker::high(other))), Some(Marker::high(other)));
        assert_eq!(Marker::low(mine).requires(None), None);
    }

    #[test]
    fn what_became_of_a_put_is_read_off_the_marker() {
        let (mine, other) = (RunId::from(1), RunId::from(2));
        assert_eq!(after_put(Marker::low(mine), Some(Marker::low(mine))), AfterPut::Stands);
        assert_eq!(after_put(Marker::low(mine), None), AfterPut::Lost);
        assert_eq!(after_put(Marker::high(mine), Some(Marker::high(mine))), AfterPut::Stands);
        assert_eq!(after_put(Marker::high(mine), Some(Marker::low(mine))), AfterPut::Repeat);
        assert_eq!(after_put(Marker::high(mine), Some(Marker::low(other))), AfterPut::Lost);
    }

    #[test]
    fn a_run_id_survives_being_written_and_read_and_has_one_spelling() {
        for bits in [0, 1, u128::MAX] {
            assert_eq!(RunId::from(bits).to_string().parse(), Ok(RunId::from(bits)));
        }
        for text in ["", "1", &"F".repeat(32), &"g".repeat(32), &format!("+{}", "1".repeat(31))] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }
}
