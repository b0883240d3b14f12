//! The rules that the models found necessary, each of which the simulation can break: seven about rows, twenty-one about
//! counts and what an answer says of itself, three about milestones, nine about what is trending.

use clap::ValueEnum;

/// A pipeline with one rule broken. Every one of them is made at a port or on the wire, out of what the real service
/// asks for there, so that the services carry no switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Mutant {
    /// A removal deletes the row.
    NoTombstone,
    /// A like again leaves the row with the time at which its tombstone expires.
    KeptGone,
    /// What was read is committed, whether it is finished or not.
    CommittedBeyond,
    /// Statements are sent under a claim of long ago.
    Sleeper,
    /// A retry goes on that knows of no newer event of its row.
    RetryOutlives,
    /// A cell is written whatever its `to` is.
    CellUnguarded,
    /// The loss of a replay is closed before the replay has passed.
    ReplayClosed,
    /// The filter that is stored with a position is that of an earlier one.
    StaleFilter,
    /// A fold does not compare back-links.
    NoBackLink,
    /// Several messages of a process are under way in one partition.
    TwoUnderWay,
    /// A relay begins behind what was sent, and not behind what was acknowledged.
    BehindSent,
    /// A relay claims everything up to the read that found the tip.
    NoMargin,
    /// A recount's tail begins at the end of the log.
    TailAtEnd,
    /// A recount's tail accepts copies.
    TailUnfiltered,
    /// A recount does not wait for its markers.
    NoMarkerWait,
    /// A correction does not name how many corrections it has seen.
    Unseen,
    /// A loss is announced after what lies behind it.
    LateAnnouncement,
    /// A counter does not carry the last announcement of a loss before it.
    NoGap,
    /// The API reads the standing after the counter.
    StandingLast,
    /// The cache is told of a standing before the values that it has.
    StandingFirst,
    /// A correction does not name the last loss that its recount knew of.
    LossUnnamed,
    /// A recount's tail begins before the announcement of a loss.
    TailBeforeLoss,
    /// The announcement of a lost piece of stream does not raise the filter.
    NotRaised,
    /// The first section after a take-over has no back-link.
    NoTakeOverLink,
    /// Announcements of losses are compared by the numbers of the losses, which are times of the clocks of their finders.
    LossesByNumber,
    /// A row key is settled once its correction is sent.
    SettledBySending,
    /// A relay believes its machine's clock.
    LocalClock,
    /// By when everything acknowledged is a row is paired with an older standing.
    SafeUnpaired,
    /// A milestone is recorded after the reply to the update that reached it.
    #[value(name = "late")]
    LateRecord,
    /// An update that reaches a threshold does not compare what it replaces.
    #[value(name = "no version", alias = "no-version")]
    NoVersion,
    /// A threshold that is reached again is recorded again, over the first.
    #[value(name = "overwrite")]
    Overwrite,
    /// Copies in the log are counted in lists.
    #[value(name = "T3")]
    Unfiltered,
    /// A section is counted whole in lists, or not at all.
    #[value(name = "T4")]
    FilteredByMessage,
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
    /// Lists forget what the log lacks.
    #[value(name = "T11")]
    LossForgotten,
    /// The two sides of a change are filtered apart.
    #[value(name = "T12")]
    HalvesApart,
}

impl Mutant {
    /// Its name in the catalogue.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether what it breaks is about rows alone.
    pub(crate) fn is_of_rows(self) -> bool {
        self <= Self::ReplayClosed
    }

    /// Whether what it breaks is a part of recounting.
    pub(crate) fn is_of_recount(self) -> bool {
        matches!(
            self,
            Self::TailAtEnd
                | Self::TailUnfiltered
                | Self::NoMarkerWait
                | Self::Unseen
                | Self::LossUnnamed
                | Self::TailBeforeLoss
                | Self::NotRaised
                | Self::SettledBySending
        )
    }

    /// Whether what it breaks is seen where pieces of the stream, or of the log, are lost.
    pub(crate) fn is_of_losses(self) -> bool {
        matches!(
            self,
            Self::NoBackLink
                | Self::LateAnnouncement
                | Self::NoGap
                | Self::LossUnnamed
                | Self::TailBeforeLoss
                | Self::NotRaised
                | Self::NoTakeOverLink
                | Self::LossesByNumber
                | Self::SettledBySending
                | Self::LossForgotten
        )
    }

    /// Whether what it breaks is how milestones are recorded.
    pub(crate) fn is_of_milestones(self) -> bool {
        matches!(self, Self::LateRecord | Self::NoVersion | Self::Overwrite)
    }

    /// Whether what it breaks is how lists of what is trending are made from the log.
    pub(crate) fn is_of_lists(self) -> bool {
        self >= Self::Unfiltered
    }

    /// Whether it is seen in answers: the others are seen in rows, counters, records or lists.
    pub(crate) fn is_of_honesty(self) -> bool {
        !self.is_of_rows() && !self.is_of_milestones() && !self.is_of_lists()
    }
}
