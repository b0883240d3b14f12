//! Whether the numbers of stream shards that counters know have all been given: checkpoints that are lost, or older than the counts,
//! would give some of them again, and what those shards say would be taken for counted.

use std::fmt;

use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, StreamTable};
use tally_core::ports::{Counts as _, Outcome, Segment};

use super::checkpoints::Checkpoints;
use super::connection::Connection;
use super::counts::Counts;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// How many counters were read.
    pub counters: usize,
    /// The greatest number that one of them knows.
    pub greatest: Option<Ordinal>,
    /// The next number that would be given; `None` where none ever was.
    pub next: Option<Ordinal>,
}

/// Checkpoints that would give numbers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    greatest: Ordinal,
    next: Option<Ordinal>,
}

impl Numbers {
    /// Reads counters, every one or a page of them, and then the registries: of what is counted meanwhile the numbers are given before.
    ///
    /// # Errors
    /// A table cannot be read.
    pub async fn read(connection: &Connection, every_counter: bool) -> Outcome<Self> {
        let (counts, mut found, mut after) = (Counts::new(connection), Self::default(), None);
        loop {
            let page = counts.scan(Segment { index: 0, of: 1 }, after.as_ref()).await?;
            found.counters += page.items.len();
            let readable = page.items.iter().filter_map(|(_, counter)| counter.as_ref().ok());
            found.greatest = readable.filter_map(Counter::greatest_ordinal).max().max(found.greatest);
            after = page.next.filter(|_| every_counter);
            if after.is_none() {
                break;
            }
        }
        found.next = Checkpoints::new(connection).greatest_next(StreamTable::LIKES).await?;
        Ok(found)
    }

    /// Why no stream shard may be numbered; `None` where all is well.
    pub fn behind(&self) -> Option<Behind> {
        let next = self.next;
        self.greatest
            .filter(|greatest| next.is_none_or(|next| *greatest >= next))
            .map(|greatest| Behind { greatest, next })
    }

    /// Reads a page of counters, as a process does that is about to number stream shards.
    ///
    /// # Errors
    /// A table cannot be read; fatal where numbers would be given again.
    pub async fn check(connection: &Connection) -> Outcome<()> {
        match Self::read(connection, false).await?.behind() {
            None => Ok(()),
            Some(behind) => Err(Fault::Fatal(format!(
                "{behind}. Nothing is counted over them: `tally rebuild counts` writes the counters anew"
            ))),
        }
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { greatest, next } = self;
        write!(f, "a counter knows stream shard {greatest}, and ")?;
        match next {
            Some(next) => write!(f, "{next} is the next to be given: the checkpoints are older than the counts"),
            None => f.write_str("none was ever given: the checkpoints are lost"),
        }
    }
}
