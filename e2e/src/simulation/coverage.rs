//! How often each kind of fault was done to the pipeline.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::driver::Deed;

/// Kinds of faults that are not deeds.
const OTHERS: [&str; 25] = [
    "acknowledgement_lost",
    "cache_failed",
    "claim_taken_over",
    "clock_wrong",
    "conflict",
    "counters_defined",
    "drop_reply",
    "forward_reset_refused",
    "ghost",
    "ghost_applied",
    "internal_error",
    "iterator_expired",
    "latency",
    "message_late",
    "misrouted",
    "misrouted_refused",
    "poison",
    "replay",
    "resurrection",
    "said_before_defined",
    "signature_expired",
    "stream_late",
    "throttle",
    "tombstone_expired",
    "unprocessed",
];

/// Kinds of faults that there are where what is trending is listed.
const LISTED: [&str; 2] = ["changes_away", "listers_changed"];

/// Every kind of fault there is beside those of lists.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    Deed::ALL.into_iter().map(Deed::name).chain(OTHERS)
}

/// The kinds of faults that there are beside them where what is trending is listed.
pub fn kinds_of_lists() -> impl Iterator<Item = &'static str> {
    LISTED.into_iter()
}

/// Counts by kind; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(Arc<Mutex<BTreeMap<String, u64>>>);

impl Coverage {
    /// One more of `kind`.
    pub(crate) fn fired(&self, kind: &str) {
        self.add(kind, 1);
    }

    /// Some more of `kind`.
    pub(crate) fn add(&self, kind: &str, count: u64) {
        if count > 0 {
            *self.counts().entry(kind.to_owned()).or_default() += count;
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.counts().clone()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
