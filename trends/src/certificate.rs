//! What may be claimed of a list.

use tally_core::ledger::Seconds;
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

/// Why it is not known; of several, the first in this order is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The ledger lacks some of the window.
    Loss,
    /// The window began before the ledger was complete.
    Young,
    /// A partition has no list of this moment.
    Missing,
    /// Something of the window came after its moment was told.
    Clock,
    /// There are more regions than boards for them: the region's list may lack some that were counted as `other`.
    Shed,
    /// So many of the first ones are blocked that others, which are not listed, may come before the last places.
    Blocked,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 6] = [Self::Loss, Self::Young, Self::Missing, Self::Clock, Self::Shed, Self::Blocked];

    /// The reason of this label.
    pub fn of_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.label() == label)
    }

    /// The reason, as an answer states it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Young => "young",
            Self::Missing => "missing",
            Self::Clock => "clock",
            Self::Shed => "shed",
            Self::Blocked => "blocked",
        }
    }
}

impl Claim {
    /// What may be claimed of a list that is made of two: each subject is in one of them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown(one), Self::Unknown(other)) => Self::Unknown(one.min(other)),
            (unknown @ Self::Unknown(_), _) | (_, unknown @ Self::Unknown(_)) => unknown,
            (one, other) => match one.bound().max(other.bound()) {
                Some(bound) if bound > 0 => Self::Bound(bound),
                _ => Self::Exact,
            },
        }
    }

    /// By how much a sum may be off; `None` where that is not known.
    pub fn bound(self) -> Option<u64> {
        match self {
            Self::Exact => Some(0),
            Self::Bound(bound) => Some(bound),
            Self::Unknown(_) => None,
        }
    }

    /// Why it is not known.
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::Unknown(reason) => Some(reason),
            Self::Exact | Self::Bound(_) => None,
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
