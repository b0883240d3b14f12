//! Decides what a list of what is trending may claim about its accuracy: that it is exact, a bound of the error, or a
//! reason why the error is not known.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tally_core::time::UnixMillis;

/// What is known about a window. The claim follows from it.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// The last second before the window.
    pub from: u64,
    /// Everything that was appended to the log since this time was read. It is the epoch if the log was read from its
    /// very beginning, and `None` if the time is not known.
    pub since: Option<UnixMillis>,
    /// The time at which the last known loss was announced. The lost changes were made before it.
    pub loss: Option<UnixMillis>,
    /// The latest second with a change whose weight cannot be read.
    pub unreadable: Option<u64>,
    /// The latest second with a change that came after its moment.
    pub late: Option<u64>,
    /// The most that a sum can be off because of forgotten keys.
    pub shed: u64,
}

/// The largest assumed difference between the clocks of the log and the table. The log dates messages, and the table
/// dates changes of rows.
const CLOCKS: Duration = Duration::from_secs(60);

/// A claim about the accuracy of a list. A list that is merged from several has the greatest of their claims, since each
/// subject is in only one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The list equals what the rows say.
    Exact,
    /// No listed sum is off by more than this, and no unlisted subject beats the last one by more.
    Bound(u64),
    /// The error is not known.
    Unknown(Reason),
}

/// Why the error is not known. If there are several reasons, the last in this order is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// So many of the first subjects are blocked that unlisted ones may belong in the last places.
    Blocked,
    /// There are more regions than boards for them, so the region's list may lack changes that were counted as `other`.
    Shed,
    /// A change in the window came after its moment was published.
    Clock,
    /// A partition has no list of this moment.
    Missing,
    /// The window begins before the part of the log that was read.
    Young,
    /// Changes in the window may be lost.
    Loss,
}

impl Claim {
    /// Returns the most that a sum may be off, or `None` if that is not known.
    pub fn bound(self) -> Option<u64> {
        match self {
            Self::Exact => Some(0),
            Self::Bound(bound) => Some(bound),
            Self::Unknown(_) => None,
        }
    }

    /// Why the error is not known.
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::Unknown(reason) => Some(reason),
            Self::Exact | Self::Bound(_) => None,
        }
    }
}

/// Derives the claim from the evidence.
pub fn certify(evidence: &Evidence) -> Claim {
    let Evidence { from, since, loss, unreadable, late, shed } = *evidence;
    let begins_behind = |at: UnixMillis| from.saturating_mul(1000) >= at.plus(CLOCKS).0;
    let is_lost = !loss.is_none_or(begins_behind) || unreadable.is_some_and(|second| second > from);
    let is_young = since != Some(UnixMillis(0)) && !since.is_some_and(begins_behind);
    let is_late = late.is_some_and(|second| second > from);
    let reasons = [(is_lost, Reason::Loss), (is_young, Reason::Young), (is_late, Reason::Clock)];
    let known = if shed == 0 { Claim::Exact } else { Claim::Bound(shed) };
    reasons.into_iter().find(|(holds, _)| *holds).map_or(known, |(_, reason)| Claim::Unknown(reason))
}
