//! What may be done to a pipeline between two looks at it, and how often each kind of fault was done.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
/// Something that happens to the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Nothing,
    Crash,
    Stop,
    Freeze,
    /// Another consumer joins, or one leaves.
    Rebalance,
    /// The group gives all its members up.
    Expire,
    Split,
    Roll,
    /// All records that there are are trimmed; streamers may have read them.
    Trim,
    /// Streamers stand still, and what was written meanwhile is trimmed before they go on.
    Lapse,
    /// The stream is switched off, and on again a little later.
    Switch,
    /// Every process stands still for longer than an iterator lives.
    Pause,
    /// No process works for longer than records are kept.
    Day,
    BrokerDown,
    LettersRefused,
    Evict,
    /// A reader fills the cache, slowly.
    Fill,
    /// No request arrives.
    Outage,
    /// Every request takes a second or more.
    Slow,
    /// A process comes back with a wrong clock.
    Skew,
    /// Row keys are queued for a recount.
    Ask,
    /// A counter is changed by hand.
    Inject,
    /// Rows whose weight is not readable are put beside a counter's, and taken away after a while.
    Garble,
    /// No process works for longer than a short-lived tombstone.
    Hours,
    /// The group is set back.
    ResetGroup,
    /// The group is set forward, and an operator sees to it after a while.
    ResetForward,
    /// A claim is raised under its owner.
    Raise,
    /// An operator pauses the topic for a while.
    PauseTopic,
    /// The group of all folds gives all its members up.
    FoldsExpire,
    /// The log of changes loses messages that it has acknowledged, at its end.
    ChangesLost,
    /// The same of messages that no fold has read.
    UnreadLost,
    /// The log of changes loses its beginning.
    ChangesTrimmed,
    /// The cache forgets the last that it was told, or everything.
    Failover,
    /// The table of counters is deleted and created anew, and an operator adopts it after a while.
    TableLost,
    /// Another process lists what is trending, or one dies, or the group gives all its members up.
    ListersChange,
    /// The log of changes takes nothing for many minutes.
    ChangesAway,
}

impl Deed {
    /// All of them that do something, beside those that are about lists.
    pub(crate) const ALL: [Self; 33] = [
        Self::Crash,
        Self::Stop,
        Self::Freeze,
        Self::Rebalance,
        Self::Expire,
        Self::Split,
        Self::Roll,
        Self::Trim,
        Self::Lapse,
        Self::Switch,
        Self::Pause,
        Self::Day,
        Self::BrokerDown,
        Self::LettersRefused,
        Self::Evict,
        Self::Fill,
        Self::Outage,
        Self::Slow,
        Self::Skew,
        Self::Ask,
        Self::Inject,
        Self::Garble,
        Self::Hours,
        Self::ResetGroup,
        Self::ResetForward,
        Self::Raise,
        Self::PauseTopic,
        Self::FoldsExpire,
        Self::ChangesLost,
        Self::UnreadLost,
        Self::ChangesTrimmed,
        Self::Failover,
        Self::TableLost,
    ];

    /// Its name in the counts of what was done.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Crash => "crash",
            Self::Stop => "stop",
            Self::Freeze => "freeze",
            Self::Rebalance => "rebalance",
            Self::Expire => "group_expired",
            Self::Split => "shard_split",
            Self::Roll => "shard_roll",
            Self::Trim => "trim",
            Self::Lapse => "trim_unread",
            Self::Switch => "stream_switched",
            Self::Pause => "pause",
            Self::Day => "day_long_outage",
            Self::BrokerDown => "broker_down",
            Self::LettersRefused => "dead_letters_refused",
            Self::Evict => "cache_evicted",
            Self::Fill => "cache_filled_late",
            Self::Outage => "store_outage",
            Self::Slow => "store_slow",
            Self::Skew => "clock_jump",
            Self::Ask => "recount_asked",
            Self::Inject => "drift_injected",
            Self::Garble => "weight_unreadable",
            Self::Hours => "hours_long_outage",
            Self::ResetGroup => "group_reset",
            Self::ResetForward => "group_reset_forward",
            Self::Raise => "claim_raised",
            Self::PauseTopic => "topic_paused",
            Self::FoldsExpire => "folds_expired",
            Self::ChangesLost => "changes_lost",
            Self::UnreadLost => "changes_lost_unread",
            Self::ChangesTrimmed => "changes_trimmed",
            Self::Failover => "cache_failover",
            Self::TableLost => "table_lost",
            Self::ListersChange => "listers_changed",
            Self::ChangesAway => "changes_away",
        }
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
            *self.0.lock().entry(kind.to_owned()).or_default() += count;
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}
