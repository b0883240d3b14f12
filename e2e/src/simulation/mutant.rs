//! The fourteen rules that the models found necessary, each of which the simulation can break.

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
}

impl Mutant {
    /// All of them, in the order of the catalogue.
    pub const ALL: [Self; 14] = [
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
    ];

    /// Its name in the catalogue.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether what it breaks is a part of recounting.
    pub(crate) fn is_of_recount(self) -> bool {
        !matches!(self, Self::Pipelined | Self::NoFloor | Self::SinkingFloor | Self::NoFence | Self::Presumed)
    }
}
