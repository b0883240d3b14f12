//! How an attempt at a window ends.

use super::Judgement;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The verdict stands.
    Judged(Judgement),
    /// The correction is large, and large ones are not written.
    Withheld(Judgement),
    /// There is no verdict: begin anew.
    Again(Again),
}

/// Why an attempt came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Again {
    /// The opening marker does not stand.
    NotOpened,
    /// Another attempt's marker took the place of ours.
    TakenOver,
    /// Token and report did not come.
    NoReport,
    /// The counter holds another attempt's token, or none.
    TokenGone,
    /// The stream's readers did not come past the closing marker.
    NotPassed,
    /// The verdict was refused, or its outcome is not known.
    Void,
    /// The rows weigh more than a counter holds.
    Overflow,
    /// A row's weight is not readable.
    Unreadable,
    /// So many rows were read, and could not be held beside those of other windows.
    NoRoom(u64),
}

impl Again {
    /// The reason, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotOpened => "not_opened",
            Self::TakenOver => "taken_over",
            Self::NoReport => "no_report",
            Self::TokenGone => "token_gone",
            Self::NotPassed => "not_passed",
            Self::Void => "void",
            Self::Overflow => "overflow",
            Self::Unreadable => "unreadable",
            Self::NoRoom(_) => "no_room",
        }
    }
}

impl Ending {
    /// The ending, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Judged(_) => "judged",
            Self::Withheld(_) => "withheld",
            Self::Again(again) => again.label(),
        }
    }
}
