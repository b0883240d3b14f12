//! `tally topic`: shows how far the rows of each partition have come (`show`). Consumers stop where they may lose
//! events or count wrongly; an operator has them go on with a topic that was replaced or has grown (`adopt`), or at an
//! offset of a partition (`skip`).

mod adopt;
mod seen;
mod show;
mod skip;

use clap::Subcommand;

pub(crate) use self::adopt::{Adoption, Sums};
pub(crate) use self::seen::{Part, Seen};
use crate::said::Answer;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Shows each partition: its claim, what its group has committed, up to where and when its rows are complete, what
    /// waits, and who reads it. Exits with 1 where anything is wrong, which it names first
    Show(Box<show::Args>),
    /// Goes on with a topic that was created anew or has another number of partitions
    ///
    /// All of its events are of a new generation, which is above every earlier one, so that they replace what the rows have. A
    /// topic that has grown has to be drained: stop producers until nothing waits. A topic that was created anew is read from its
    /// start, and consumers have to be stopped, since Kafka sets the offsets of a group only while it has no members.
    Adopt(Box<adopt::Args>),
    /// Has a partition go on at an offset, and leaves out what lies before. From then on no count is exact until an audit has passed
    ///
    /// It is for a partition that stands still because records were deleted unread, because its group was set forward, or because
    /// its log has lost its tail. To have records read once more, set the group back with Kafka's own tools instead.
    Skip(Box<skip::Args>),
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::Show(args) => args.run().await,
            Self::Adopt(args) => args.run().await,
            Self::Skip(args) => args.run().await,
        }
    }
}
