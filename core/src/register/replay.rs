//! A replay: a consumer reads events of a Kafka partition again, so late that removed members may come back. Meanwhile
//! a loss (a known reason why counts may be wrong) is open, whose text is written and read here.

use std::fmt;
use std::str::FromStr;

use super::Kept;
use crate::topic::{Offset, Partition};

/// A consumer reads a partition again up to `until`, so long after the records were written that removed members may
/// come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    pub partition: Partition,
    pub until: Offset,
}

impl Replay {
    /// The kind of the loss that is open meanwhile.
    pub const LOSS: &'static str = "replay";

    /// Returns whether the replay still goes on, where `kept` is what the partition's claim stores.
    pub fn goes_on(&self, kept: Option<&Kept>) -> bool {
        kept.is_some_and(|kept| kept.replay.is_some() && kept.safe < self.until)
    }
}

const UP_TO: &str = " is read once more up to ";

/// Writes the text of the loss.
impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{UP_TO}{}", self.partition, self.until)
    }
}

/// The text is not that of a replay's loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not said what is replayed")]
pub struct NoReplay;

impl FromStr for Replay {
    type Err = NoReplay;

    fn from_str(text: &str) -> Result<Self, NoReplay> {
        let read = || {
            let (partition, until) = text.split_once(UP_TO)?;
            let (topic, index) = partition.rsplit_once('/')?;
            let partition = Partition { topic: topic.into(), index: index.parse().ok()? };
            Some(Self { partition, until: Offset(until.parse().ok()?) })
        };
        read().ok_or(NoReplay)
    }
}
