//! The rules that the models found necessary, each of which the simulation can break: fourteen about rows and counts, six
//! about what an answer says of itself, three about sums, four about milestones, thirteen about what is trending.

use clap::ValueEnum;

/// A pipeline with one rule broken. Every one of them is made at a port or on the wire, out of what the real service
/// asks for there, so that the services carry no switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Mutant {
    /// The next prefix is sent before the last one is answered.
    #[value(name = "P0m")]
    Pipelined,
    /// Watermarks of finished stream shards are dropped, and no floor takes their place.
    #[value(name = "P1")]
    NoFloor,
    /// The floor may go back.
    #[value(name = "P5m")]
    SinkingFloor,
    /// A marker is put whatever stands there, and so repeated like any put.
    #[value(name = "M1")]
    UnchainedMarker,
    /// A capture survives a trim.
    #[value(name = "M3")]
    CaptureOverTrim,
    /// A verdict needs no token.
    #[value(name = "M4")]
    NoToken,
    /// A report is written although the opening marker was not seen.
    #[value(name = "M5")]
    UnopenedReport,
    /// The token holds the rows from before the prefix that its closing marker ends.
    #[value(name = "M6")]
    NoBoundary,
    /// The wait is before the closing marker alone.
    #[value(name = "M8")]
    OneWait,
    /// Records that the counter has already are not captured.
    #[value(name = "M12")]
    AppliedNotCaptured,
    /// A capture survives a resume elsewhere.
    #[value(name = "M13")]
    CaptureOverResume,
    /// A verdict of nothing is not written.
    #[value(name = "M14")]
    SilentZero,
    /// Rows change without the fence's condition.
    #[value(name = "C1")]
    NoFence,
    /// An unknown outcome is taken for a failure: the old batch is sent under a fence read afresh.
    #[value(name = "C2")]
    Presumed,
    /// The API never looks at open gaps.
    GapsIgnored,
    /// The API takes the youngest `at` of the stream shards for its `as_of`, and not the oldest.
    AsOfTooYoung,
    /// The cache keeps an older version where a newer one comes, under the newer one's `as_of`.
    OlderVersionKept,
    /// A streamer goes on behind a loss as soon as it is recorded.
    NoHold,
    /// The API reads the gaps before the stream shards' `at`, and not after.
    GapsBeforeShards,
    /// The API judges the age of what it knows when it reads it anew, and not when it answers.
    AgeByPoller,
    /// A report says which rows were there, and not what they weighed.
    PresenceKept,
    /// What changed inside a window is added to what was read, and does not take its place.
    DeltasAdded,
    /// A cell is written without its own condition.
    CellUnguarded,
    /// An update that reaches no threshold from where the counter was seen does not look where it stands.
    #[value(name = "blind")]
    Blind,
    /// A milestone is recorded after the reply to the update that reached it.
    #[value(name = "late")]
    LateRecord,
    /// An update that reaches a threshold does not look at the counter's version.
    #[value(name = "no version", alias = "no-version")]
    NoVersion,
    /// A threshold that is reached again is recorded again, over the first.
    #[value(name = "overwrite")]
    Overwrite,
    /// The ledger is called fed before Kafka has acknowledged it.
    #[value(name = "T1")]
    FedBeforeAnswer,
    /// Several messages of the ledger are under way to one partition.
    #[value(name = "T2")]
    TwoUnderWay,
    /// Copies in the ledger are counted.
    #[value(name = "T3")]
    Unfiltered,
    /// A message of the ledger is counted whole, or not at all.
    #[value(name = "T4")]
    FilteredByMessage,
    /// The end of the ledger is asked for before it is learnt how far it is fed.
    #[value(name = "T5")]
    EarlyEnd,
    /// A board of which too few are left is not refilled.
    #[value(name = "T6")]
    NoRefill,
    /// What has left a window is taken off once more after a restart.
    #[value(name = "T7")]
    ExpiredTwice,
    /// Lists of different moments are merged.
    #[value(name = "T8")]
    MomentsMixed,
    /// A list takes the place of a later one.
    #[value(name = "T9")]
    OlderTaken,
    /// A like again from another region stays in the first one.
    #[value(name = "T10")]
    RegionKept,
    /// What the ledger lacks is forgotten.
    #[value(name = "T11")]
    LossForgotten,
    /// The two sides of a change are filtered apart.
    #[value(name = "T12")]
    HalvesApart,
    /// A streamer that does not write the ledger moves how far it is fed.
    #[value(name = "T13")]
    FedByOthers,
}

impl Mutant {
    /// All of them, in the order of the catalogue.
    pub const ALL: [Self; 40] = [
        Self::Pipelined,
        Self::NoFloor,
        Self::SinkingFloor,
        Self::UnchainedMarker,
        Self::CaptureOverTrim,
        Self::NoToken,
        Self::UnopenedReport,
        Self::NoBoundary,
        Self::OneWait,
        Self::AppliedNotCaptured,
        Self::CaptureOverResume,
        Self::SilentZero,
        Self::NoFence,
        Self::Presumed,
        Self::GapsIgnored,
        Self::AsOfTooYoung,
        Self::OlderVersionKept,
        Self::NoHold,
        Self::GapsBeforeShards,
        Self::AgeByPoller,
        Self::PresenceKept,
        Self::DeltasAdded,
        Self::CellUnguarded,
        Self::Blind,
        Self::LateRecord,
        Self::NoVersion,
        Self::Overwrite,
        Self::FedBeforeAnswer,
        Self::TwoUnderWay,
        Self::Unfiltered,
        Self::FilteredByMessage,
        Self::EarlyEnd,
        Self::NoRefill,
        Self::ExpiredTwice,
        Self::MomentsMixed,
        Self::OlderTaken,
        Self::RegionKept,
        Self::LossForgotten,
        Self::HalvesApart,
        Self::FedByOthers,
    ];

    /// Its name in the catalogue.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether what it breaks is a part of recounting.
    pub(crate) fn is_of_recount(self) -> bool {
        let of_counting =
            [Self::Pipelined, Self::NoFloor, Self::SinkingFloor, Self::NoFence, Self::Presumed, Self::CellUnguarded];
        let others = self.is_of_honesty() || self.is_of_milestones() || self.is_of_lists();
        !of_counting.contains(&self) && !others
    }

    /// Whether captures are kept for it beside the service's own.
    pub(crate) fn is_of_captures(self) -> bool {
        let by_other_rules = matches!(self, Self::CaptureOverTrim | Self::UnopenedReport | Self::CaptureOverResume);
        by_other_rules || matches!(self, Self::AppliedNotCaptured | Self::DeltasAdded)
    }

    /// Whether what it breaks is about sums alone: the schedules of the others say likes.
    pub(crate) fn is_of_sums(self) -> bool {
        matches!(self, Self::PresenceKept | Self::DeltasAdded | Self::CellUnguarded)
    }

    /// Whether what it breaks is how milestones are recorded.
    pub(crate) fn is_of_milestones(self) -> bool {
        matches!(self, Self::Blind | Self::LateRecord | Self::NoVersion | Self::Overwrite)
    }

    /// Whether what it breaks is the ledger of changes, or how lists of what is trending are made from it.
    pub(crate) fn is_of_lists(self) -> bool {
        self >= Self::FedBeforeAnswer
    }

    /// Whether what it breaks is what an answer says of itself.
    pub(crate) fn is_of_honesty(self) -> bool {
        let of_recording = matches!(self, Self::NoHold | Self::OlderVersionKept);
        of_recording || self.is_of_reading()
    }

    /// Whether what it breaks is how the API reads what it judges answers by.
    pub(crate) fn is_of_reading(self) -> bool {
        matches!(self, Self::GapsIgnored | Self::AsOfTooYoung | Self::GapsBeforeShards | Self::AgeByPoller)
    }
}
