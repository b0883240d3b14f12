//! What may be claimed of a list.

use tally_core::changes::Seconds;
use tally_core::time::UnixMillis;

/// What is known of the window that a list is about.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The last second before the window.
    pub from: u64,
    /// The last second in it.
    pub moment: u64,
    /// Since when the ledger is complete; `None` where it is not.
    pub since: Option<UnixMillis>,
    /// What is missing in the ledger, read after everything up to the moment was.
    pub lapses: &'a [Seconds],
    /// The greatest second of which something came after its moment.
    pub late: Option<u64>,
    /// A partition has no list of this moment.
    pub missing: bool,
    /// No sum is off by more for what was shed.
    pub shed: u64,
}

/// What is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is what the rows say.
    Exact,
    /// No sum that is listed is off by more, and none that is not beats the last one by more.
    Bound(u64),
    /// How far it is off is not known.
    Unknown(Reason),
}

/// Why it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The ledger lacks some of the window.
    Loss,
    /// The window began before the ledger was complete.
    Young,
    /// A partition has no list of this moment.
    Missing,
    /// Something of the window came after its moment was told.
    Clock,
}

impl Reason {
    /// The reason, as an answer states it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Young => "young",
            Self::Missing => "missing",
            Self::Clock => "clock",
        }
    }
}

/// What may be claimed, given `evidence`.
pub fn certify(evidence: &Evidence<'_>) -> Claim {
    let Evidence { from, moment, since, lapses, late, missing, shed } = *evidence;
    let overlaps = |lapse: &Seconds| lapse.last > from && lapse.first <= moment;
    let is_young = since.is_none_or(|since| since.0 > from.saturating_mul(1000));
    let reason = if lapses.iter().any(overlaps) {
        Some(Reason::Loss)
    } else if is_young {
        Some(Reason::Young)
    } else if missing {
        Some(Reason::Missing)
    } else if late.is_some_and(|second| second > from) {
        Some(Reason::Clock)
    } else {
        None
    };
    match (reason, shed) {
        (Some(reason), _) => Claim::Unknown(reason),
        (None, 0) => Claim::Exact,
        (None, shed) => Claim::Bound(shed),
    }
}
