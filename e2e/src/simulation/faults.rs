//! What may be done to a pipeline between two looks at it, and how often each kind of fault was done.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::ValueEnum;
use parking_lot::Mutex;

/// Something that happens to the pipeline. Each is counted under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Deed {
    #[value(skip)]
    Nothing,
    Crash,
    Stop,
    Freeze,
    /// Another consumer joins, or one leaves.
    Rebalance,
    /// The group gives all its members up.
    GroupExpired,
    ShardSplit,
    ShardRoll,
    /// All records that there are are trimmed; streamers may have read them.
    Trim,
    /// Streamers stand still, and what was written meanwhile is trimmed before they go on.
    TrimUnread,
    /// The stream is switched off, and on again a little later.
    StreamSwitched,
    /// Every process stands still for longer than an iterator lives.
    Pause,
    /// No process works for longer than records are kept.
    DayLongOutage,
    BrokerDown,
    DeadLettersRefused,
    CacheEvicted,
    /// A reader fills the cache, slowly.
    CacheFilledLate,
    /// No request arrives.
    StoreOutage,
    /// Every request takes a second or more.
    StoreSlow,
    /// A process comes back with a wrong clock.
    ClockJump,
    /// Row keys are queued for a recount.
    RecountAsked,
    /// A counter is changed by hand.
    DriftInjected,
    /// Rows whose weight is not readable are put beside a counter's, and taken away after a while.
    WeightUnreadable,
    /// No process works for longer than a short-lived tombstone.
    HoursLongOutage,
    /// The group is set back.
    GroupReset,
    /// The group is set forward, and an operator sees to it after a while.
    GroupResetForward,
    /// A claim is raised under its owner.
    ClaimRaised,
    /// An operator pauses the topic for a while.
    TopicPaused,
    /// The group of all folds gives all its members up.
    FoldsExpired,
    /// The log of changes loses messages that it has acknowledged, at its end.
    ChangesLost,
    /// The same of messages that no fold has read.
    ChangesLostUnread,
    /// The log of changes loses its beginning.
    ChangesTrimmed,
    /// The cache forgets the last that it was told, or everything.
    CacheFailover,
    /// The table of counters is deleted and created anew, and an operator adopts it after a while.
    TableLost,
    /// Another process lists what is trending, or one dies, or the group gives all its members up.
    ListersChanged,
    /// The log of changes takes nothing for many minutes.
    ChangesAway,
}

impl Deed {
    /// Its name in the counts of what was done.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

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

/// Deeds that there are where what is trending is listed.
const LISTED: [Deed; 2] = [Deed::ChangesAway, Deed::ListersChanged];

/// Every kind of fault there is beside those of lists.
pub fn kinds() -> impl Iterator<Item = String> {
    let deeds = Deed::value_variants().iter().filter(|deed| !LISTED.contains(deed));
    deeds.map(|deed| deed.name()).chain(OTHERS.map(str::to_owned))
}

/// The kinds of faults that there are beside them where what is trending is listed.
pub fn kinds_of_lists() -> impl Iterator<Item = String> {
    LISTED.into_iter().map(Deed::name)
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
            *self.0.lock().entry(kind.to_owned()).or_default() += count;
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}
