//! What may be claimed of a list.

use std::time::Duration;

use tally_core::time::UnixMillis;

/// What is known of the window that a list is about.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// The last second before the window.
    pub from: u64,
    /// Everything that was appended to the log since then was read; the epoch where the log was read from its very beginning,
    /// `None` where that is not known.
    pub since: Option<UnixMillis>,
    /// When the last loss was announced that was read. What it is about was changed before that.
    pub loss: Option<UnixMillis>,
    /// The greatest second of a change whose weight cannot be read.
    pub unreadable: Option<u64>,
    /// The greatest second of which something came after its moment.
    pub late: Option<u64>,
    /// No sum is off by more for what was shed.
    pub shed: u64,
}

/// By how much the clocks of the log and of the table differ at most. The log says when a message was appended, and the table
/// when a row was changed.
const CLOCKS: Duration = Duration::from_secs(60);

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
    /// Some of the window may be lost.
    Loss,
    /// The window began before what was read of the log.
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
pub fn certify(evidence: &Evidence) -> Claim {
    let Evidence { from, since, loss, unreadable, late, shed } = *evidence;
    let begins_behind = |at: UnixMillis| from.saturating_mul(1000) >= at.plus(CLOCKS).0;
    let is_lost = !loss.is_none_or(begins_behind) || unreadable.is_some_and(|second| second > from);
    let reason = if is_lost {
        Some(Reason::Loss)
    } else if since != Some(UnixMillis(0)) && !since.is_some_and(begins_behind) {
        Some(Reason::Young)
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
