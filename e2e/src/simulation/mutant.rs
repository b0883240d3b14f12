//! The list of rules that the simulation can break on purpose, to show that its laws notice a pipeline without the
//! rule: seven about rows, twenty-one about counts and the claims of answers, four about Regions, three about
//! milestones, and nine about what is trending. The models of the protocols found these rules necessary.

use clap::ValueEnum;

use crate::simulation::name_of;

/// A pipeline with one rule broken. Each mutant is made at a port or on the wire, by changing what the real service sends or
/// receives there, so that the services contain no test switches. They stand in the order of what they break, which
/// comparisons rely on: rows, the log, answers, losses, recounts, Regions, milestones, lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Mutant {
    /// A removal deletes the row.
    NoTombstone,
    /// A like again leaves the expiry of its tombstone on the row.
    KeptGone,
    /// The offset of the last record read is committed, finished or not.
    CommittedBeyond,
    /// Statements are sent under a claim that is long outdated.
    Sleeper,
    /// A retry continues although a newer event of its row was sent.
    RetryOutlives,
    /// A cell is written without comparing its `to`.
    CellUnguarded,
    /// The loss of a replay is closed before the replay has finished.
    ReplayClosed,
    /// The filter stored with a position belongs to an earlier position.
    StaleFilter,
    /// A process has several messages under way in one partition.
    TwoUnderWay,
    /// A relay begins after the last message that was sent instead of the last acknowledged one.
    BehindSent,
    /// A relay claims everything up to the read that reached the tip, without a margin.
    NoMargin,
    /// The API reads the standing after the counter.
    StandingLast,
    /// The cache gets a standing before the values that belong to it.
    StandingFirst,
    /// A relay uses its machine's clock.
    LocalClock,
    /// The time by which every acknowledged event is a row is paired with an older standing.
    SafeUnpaired,
    /// A fold does not compare back-links.
    NoBackLink,
    /// The first section after a take-over has no back-link.
    NoTakeOverLink,
    /// A loss is announced after the records that follow it.
    LateAnnouncement,
    /// A counter does not store the last loss announced before it.
    NoGap,
    /// Announced losses are compared by their numbers, which come from the clocks of the processes that found them.
    LossesByNumber,
    /// A recount's tail begins at the end of the log.
    TailAtEnd,
    /// A recount's tail accepts copies.
    TailUnfiltered,
    /// A recount does not wait for its markers.
    NoMarkerWait,
    /// A correction does not state how many corrections it has seen.
    Unseen,
    /// A correction does not name the last loss that its recount knew.
    LossUnnamed,
    /// A recount's tail begins before the announcement of a loss.
    TailBeforeLoss,
    /// The announcement of a lost part of the stream does not advance the filter.
    NotRaised,
    /// A row key counts as settled once its correction is sent.
    SettledBySending,
    /// Another Region's entry replaces a later one.
    EarlierEntry,
    /// A standing of another Region counts for another partition than its own.
    ForeignStanding,
    /// A Region publishes its counts without its losses.
    LossUncarried,
    /// A reader that was far behind another Region believes the standings that it finds.
    LateBelieved,
    /// A milestone is recorded only after the reply to the update that reached it.
    #[value(name = "late")]
    LateRecord,
    /// An update that reaches a threshold does not compare the version that it replaces.
    #[value(name = "no version", alias = "no-version")]
    NoVersion,
    /// A threshold that is reached again overwrites the first record.
    #[value(name = "overwrite")]
    Overwrite,
    /// Copies in the log are counted in lists.
    #[value(name = "T3")]
    Unfiltered,
    /// Lists count all or nothing of a section.
    #[value(name = "T4")]
    FilteredByMessage,
    /// A board with too few subjects is not refilled.
    #[value(name = "T6")]
    NoRefill,
    /// Changes that have left a window are subtracted again after a restart.
    #[value(name = "T7")]
    ExpiredTwice,
    /// Lists of different moments are merged.
    #[value(name = "T8")]
    MomentsMixed,
    /// A list replaces a later one.
    #[value(name = "T9")]
    OlderTaken,
    /// A like again from another region is counted in the first region.
    #[value(name = "T10")]
    RegionKept,
    /// Lists ignore losses in the log.
    #[value(name = "T11")]
    LossForgotten,
    /// The two sides of a change are filtered separately.
    #[value(name = "T12")]
    HalvesApart,
}

impl Mutant {
    /// Its name in the catalogue.
    pub fn name(self) -> String {
        name_of(&self)
    }

    /// Whether it only affects rows.
    pub(crate) fn is_of_rows(self) -> bool {
        self <= Self::ReplayClosed
    }

    /// Whether it shows when parts of the stream or of the log are lost.
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
                | Self::LossUncarried
                | Self::LossForgotten
        )
    }

    /// Whether it shows where there are two Regions.
    pub(crate) fn is_of_regions(self) -> bool {
        (Self::EarlierEntry..=Self::LateBelieved).contains(&self)
    }

    /// Whether it breaks the recording of milestones.
    pub(crate) fn is_of_milestones(self) -> bool {
        (Self::LateRecord..=Self::Overwrite).contains(&self)
    }

    /// Whether it breaks how lists are made from the log.
    pub(crate) fn is_of_lists(self) -> bool {
        self >= Self::Unfiltered
    }

    /// Whether it shows in answers. The others show in rows, counters, records or lists.
    pub(crate) fn is_of_honesty(self) -> bool {
        !self.is_of_rows() && !self.is_of_milestones() && !self.is_of_lists()
    }
}
