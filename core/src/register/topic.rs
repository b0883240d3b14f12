//! What a deployment knows of the topic that its events come from.

use super::Version;
use crate::event::partition_of;
use crate::topic::{Offset, Partition, TopicId};

/// A topic as the deployment has adopted it. Its generations tell offsets apart that count other events, and partitions that
/// keys hash to otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// What tells the topic from a later one of the same name.
    pub id: TopicId,
    /// The generations that have records in it, the current one last. There is one at least.
    pub generations: Vec<Generation>,
    /// For each partition: from where on records add to sums, as an operator has said with `--sums skip`. Empty where all do.
    ///
    /// Cells cannot say it. The `to` of each is of an earlier generation than the records of a topic that was adopted, so all of
    /// those add; and a counter without a cell has no `to` that could be raised. An event that is left out adds 0 instead: it goes
    /// the way of every other one, and moves `to` on.
    pub sums_from: Vec<Offset>,
    /// An operator has paused its consumers.
    pub is_paused: bool,
}

/// One generation of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    pub number: u16,
    /// For each partition that the topic had in it: where its records begin. What lies before has an earlier one.
    pub begins: Vec<Offset>,
}

impl Generation {
    /// How many partitions the topic had.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.begins.len()).expect("a topic has few partitions")
    }
}

impl Topic {
    /// A topic that is read for the first time, whose partitions begin at these offsets: what was deleted before was never
    /// promised.
    pub fn first(id: TopicId, begins: Vec<Offset>) -> Self {
        Self::adopted(id, 1, begins)
    }

    /// A topic that was created anew, or whose former generations are not known: each of its records is of this generation.
    pub fn adopted(id: TopicId, number: u16, begins: Vec<Offset>) -> Self {
        Self { id, generations: vec![Generation { number, begins }], sums_from: Vec::new(), is_paused: false }
    }

    /// The same topic, in which the next generation begins at these offsets; `None` where there is no further generation.
    pub fn continued(&self, begins: Vec<Offset>) -> Option<Self> {
        let number = self.current().number.checked_add(1).filter(|number| *number <= Version::MAX_GENERATION)?;
        let mut next = self.clone();
        next.generations.push(Generation { number, begins });
        Some(next)
    }

    /// The current generation.
    pub fn current(&self) -> &Generation {
        self.generations.last().expect("a topic has one generation at least")
    }

    /// Where the topic's records begin in a partition; `None` where the deployment does not know the partition.
    pub fn begin_of(&self, index: u32) -> Option<Offset> {
        self.generations.iter().find_map(|generation| generation.begins.get(index as usize)).copied()
    }

    /// The version of the event about `subject` in the record at `offset`: of the generation that the record is of, and routed
    /// if the partition is the one that the subject hashed to then.
    pub fn version(&self, partition: &Partition, offset: Offset, subject: &str) -> Version {
        let generation = self.generation_of(partition.index, offset);
        let routed = partition_of(subject.as_bytes(), generation.partitions()) == partition.index;
        Version::new(generation.number, routed, offset)
    }

    /// The version of what the record at `offset` adds to a sum, which may come by any partition.
    pub fn version_of_sum(&self, index: u32, offset: Offset) -> Version {
        Version::new(self.generation_of(index, offset).number, true, offset)
    }

    /// Whether the record at `offset` adds to sums.
    pub fn adds(&self, index: u32, offset: Offset) -> bool {
        self.sums_from.get(index as usize).is_none_or(|from| *from <= offset)
    }

    /// The generation that the record at `offset` is of.
    pub fn generation_of(&self, index: u32, offset: Offset) -> &Generation {
        let has =
            |generation: &&Generation| generation.begins.get(index as usize).is_some_and(|begin| *begin <= offset);
        self.generations.iter().rev().find(has).unwrap_or(&self.generations[0])
    }
}
