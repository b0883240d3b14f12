//! The list of all faults and other actions that the simulation can cause, and the count of how often each occurred,
//! which shows whether runs have covered them all.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::ValueEnum;
use parking_lot::Mutex;

use crate::simulation::name_of;

/// A fault or another action. Each is counted under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Action {
    #[value(skip)]
    Nothing,
    Crash,
    Stop,
    Freeze,
    /// A consumer joins or leaves.
    Rebalance,
    /// The group loses all its members.
    GroupExpired,
    ShardSplit,
    ShardRoll,
    /// All records of the stream are trimmed; streamers may have read them.
    Trim,
    /// Streamers are frozen, and the records written meanwhile are trimmed before they resume.
    TrimUnread,
    /// The stream is switched off, and on again a little later.
    StreamSwitched,
    /// Every process is frozen for longer than a shard iterator lives.
    Pause,
    /// No process runs for longer than stream records are kept.
    DayLongOutage,
    BrokerDown,
    DeadLettersRefused,
    CacheEvicted,
    /// A reader fills the cache slowly.
    CacheFilledLate,
    /// No request reaches the store.
    StoreOutage,
    /// Every request to the store takes a second or more.
    StoreSlow,
    /// A process restarts with a wrong clock.
    ClockJump,
    /// Row keys are queued for a recount.
    RecountAsked,
    /// A counter is changed by hand.
    DriftInjected,
    /// Unreadable rows are added to a counter, and removed after a while.
    WeightUnreadable,
    /// No process runs for longer than a short-lived tombstone.
    HoursLongOutage,
    /// The group's offset is set back.
    GroupReset,
    /// The group's offset is set forward, and an operator repairs it after a while.
    GroupResetForward,
    /// A claim is raised under its owner.
    ClaimRaised,
    /// An operator pauses the topic for a while.
    TopicPaused,
    /// The group of all folds loses all its members.
    FoldsExpired,
    /// The log of changes loses acknowledged messages at its end.
    ChangesLost,
    /// The same with messages that no fold has read.
    ChangesLostUnread,
    /// The log of changes loses its beginning.
    ChangesTrimmed,
    /// The cache loses its last writes, or everything.
    CacheFailover,
    /// The table of counters is deleted and created again, and an operator adopts it after a while.
    TableLost,
    /// A process that makes lists starts or dies, or the group loses all its members.
    ListersChanged,
    /// The log of changes is unavailable for many minutes.
    ChangesAway,
}

impl Action {
    /// Its name in the coverage.
    pub(crate) fn name(self) -> String {
        name_of(&self)
    }
}

/// Kinds of faults that are not actions.
const OTHERS: [&str; 26] = [
    "acknowledgement_lost",
    "cache_failed",
    "cache_write_lost",
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

/// Actions that only occur if lists are made.
const LISTED: [Action; 2] = [Action::ChangesAway, Action::ListersChanged];

/// Every kind of fault, except for those of lists.
pub fn kinds() -> impl Iterator<Item = String> {
    let actions = Action::value_variants().iter().filter(|action| !LISTED.contains(action));
    actions.map(|action| action.name()).chain(OTHERS.map(str::to_owned))
}

/// The additional kinds of faults if lists are made.
pub fn kinds_of_lists() -> impl Iterator<Item = String> {
    LISTED.into_iter().map(Action::name)
}

/// The additional kinds of faults if there are two Regions.
pub fn kinds_of_regions() -> impl Iterator<Item = String> {
    ["crash_abroad", "freeze_abroad", "mirror_stood_still", "mirrored_again", "transaction_unknown"]
        .map(str::to_owned)
        .into_iter()
}

/// Counts by kind of fault. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(Arc<Mutex<BTreeMap<String, u64>>>);

impl Coverage {
    /// Counts one fault of `kind`.
    pub(crate) fn fired(&self, kind: &str) {
        self.add(kind, 1);
    }

    /// Counts several faults of `kind`.
    pub(crate) fn add(&self, kind: &str, count: u64) {
        if count > 0 {
            *self.0.lock().entry(kind.to_owned()).or_default() += count;
        }
    }

    /// All counts.
    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}
