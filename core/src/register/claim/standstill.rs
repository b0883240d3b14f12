//! The reasons why a consumer does not read a Kafka partition until an operator has looked, such as a topic that was
//! paused or created again. Their messages say what is wrong and what to do.

use thiserror::Error;

use crate::topic::{Offset, TopicId};

/// Why a partition is not read until an operator has looked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Standstill {
    /// An operator has paused the topic.
    #[error("an operator has paused it: `tally resume` lets it go on")]
    Paused,
    /// The rows of counters whose definition names no topic are of the topic `rows`.
    #[error(
        "the rows are of `{rows}`, and offsets of another topic mean nothing beside them: say `--topic {rows}`, or move to `{found}` \
         with `tally topic adopt --topic {found}`"
    )]
    OtherTopic { rows: String, found: String },
    /// The topic was deleted and created again.
    #[error(
        "the topic is {found}, but its rows are of {expected}: it was created again, and `tally topic adopt` goes on with it"
    )]
    TopicReplaced { expected: TopicId, found: TopicId },
    /// The topic has fewer partitions than before, which Kafka does to no topic.
    #[error("the topic has {found} partitions, but had {expected}: `tally topic adopt` goes on with it")]
    FewerPartitions { expected: u32, found: u32 },
    /// The topic has grown, and this partition is a new one.
    #[error("the partition is new: drain the {known} partitions before it, then `tally topic adopt` takes it in")]
    NewPartition { known: u32 },
    /// The group has committed more than is safe: its offset was set forward, or a consumer of another group has claimed
    /// the partition meanwhile, and began before what was done.
    #[error("{}", forward_reset(*.safe, *.committed, *.greatest))]
    ForwardReset {
        safe: Offset,
        committed: Offset,
        /// The greatest `safe` ever stored.
        greatest: Offset,
    },
    /// Retention has deleted records that were never applied.
    #[error(
        "it continues at {at}, but the log starts at {start}: {} records were deleted unread, and `tally topic skip --to {start}` \
         goes on without them",
        .start.0.saturating_sub(.at.0)
    )]
    LogTruncated { at: Offset, start: Offset },
    /// The log has lost records that were applied.
    #[error(
        "everything is done up to {at}, but the log ends at {end}: it has lost its tail, and `tally topic skip --to {end}` goes on \
         with what comes behind that"
    )]
    BeyondLog { at: Offset, end: Offset },
    /// The log has lost records that were applied, and has others at their offsets by now.
    #[error(
        "another record is at {at} than the one that was read there: the log lost its tail and has grown again, and `tally topic skip \
         --to ..` goes on with the first record that was written since"
    )]
    LogRegrown { at: Offset },
    /// The store refuses one record after the other, or a request for good.
    #[error("the store does not take what is written: {0}")]
    Refused(String),
}

impl Standstill {
    pub const NAMES: &'static [&'static str] = &[
        "paused",
        "other_topic",
        "topic_replaced",
        "fewer_partitions",
        "new_partition",
        "forward_reset",
        "log_truncated",
        "beyond_log",
        "refused",
    ];

    /// Returns the name that metrics use as a label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::OtherTopic { .. } => "other_topic",
            Self::TopicReplaced { .. } => "topic_replaced",
            Self::FewerPartitions { .. } => "fewer_partitions",
            Self::NewPartition { .. } => "new_partition",
            Self::ForwardReset { .. } => "forward_reset",
            Self::LogTruncated { .. } => "log_truncated",
            Self::BeyondLog { .. } | Self::LogRegrown { .. } => "beyond_log",
            Self::Refused(_) => "refused",
        }
    }
}

/// Says what to do about the committed offset. If it is not above `greatest`, the records before it need not be left out.
fn forward_reset(safe: Offset, committed: Offset, greatest: Offset) -> String {
    if committed <= greatest {
        return format!(
            "the group has committed {committed}, which was read before; everything is safe up to {safe} alone. If a consumer of \
             another `--group` works on these tables, stop it; otherwise reset the group to {safe}"
        );
    }
    format!(
        "the group has committed {committed}, but everything is done up to {safe} alone: reset the group to {safe}, or leave out \
         what lies between with `tally topic skip --to {committed}`"
    )
}
