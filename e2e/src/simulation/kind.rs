//! The kinds of things that go wrong, and sets of them.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Kind {
    /// The store refuses for want of throughput.
    Throttle,
    /// A write conflicts with a transaction.
    Conflict,
    /// A 500, done or not.
    InternalError,
    /// Done, and the reply is lost.
    DropReply,
    /// Given up by its client, done up to five minutes later.
    Ghost,
    /// A late answer, often given up on.
    Latency,
    /// A service dies between two awaits, and is started again.
    Crash,
    /// The whole process stands still, as under SIGSTOP, while time goes on.
    Stall,
    /// A second instance works on what the first one has, and neither knows.
    Twin,
    /// The group's partitions are taken from a member that does not know, and handed out again.
    Rebalance,
    /// The log's broker does not answer.
    LogDown,
    /// The dead-letter topic takes nothing.
    LettersRefused,
    /// A stream shard is split.
    Split,
    /// Stream shards end and are continued.
    Roll,
    /// Stream records are gone before they were read.
    Trim,
    /// A counter is changed by something that should not.
    Drift,
    /// Records that are no events.
    Poison,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Throttle,
        Self::Conflict,
        Self::InternalError,
        Self::DropReply,
        Self::Ghost,
        Self::Latency,
        Self::Crash,
        Self::Stall,
        Self::Twin,
        Self::Rebalance,
        Self::LogDown,
        Self::LettersRefused,
        Self::Split,
        Self::Roll,
        Self::Trim,
        Self::Drift,
        Self::Poison,
    ];

    /// Its name, as counts have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throttle => "throttle",
            Self::Conflict => "conflict",
            Self::InternalError => "internal_error",
            Self::DropReply => "drop_reply",
            Self::Ghost => "ghost",
            Self::Latency => "latency",
            Self::Crash => "crash",
            Self::Stall => "stall",
            Self::Twin => "twin",
            Self::Rebalance => "rebalance",
            Self::LogDown => "log_down",
            Self::LettersRefused => "letters_refused",
            Self::Split => "split",
            Self::Roll => "roll",
            Self::Trim => "trim",
            Self::Drift => "drift",
            Self::Poison => "poison",
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// Everything.
    pub const ALL: Self = Self((1 << Kind::ALL.len()) - 1);
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// Whether `kind` is among them.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    /// The same with `kind`.
    #[must_use]
    pub fn with(self, kind: Kind) -> Self {
        Self(self.0 | (1 << kind as u32))
    }

    /// The same without `kind`.
    #[must_use]
    pub fn without(self, kind: Kind) -> Self {
        Self(self.0 & !(1 << kind as u32))
    }

    /// Those there are.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}
