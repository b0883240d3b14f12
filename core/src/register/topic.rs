//! What a deployment stores about the Kafka topic `likes`, which has its events: which topic it is, and its
//! generations. A generation begins when the topic is created anew or gets more partitions.

use super::Version;
use crate::event::partition_of;
use crate::topic::{Offset, Partition, TopicId};

/// A topic as the deployment has adopted it. A generation begins when the topic is created anew or grows: from then on
/// offsets count other events, or keys hash to other partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// What tells the topic from a later one of the same name.
    pub id: TopicId,
    /// The generations that have records in the topic, the current one last. There is at least one.
    pub generations: Vec<Generation>,
    /// For each partition: the offset from which on records add to sums, set by an operator with `--sums skip`. Empty
    /// where all records add.
    ///
    /// Cells cannot hold this. All records of an adopted topic are above the `to` of each cell, whose generation is
    /// earlier; and a counter without a cell has no `to`. So an event before the offset adds 0: it goes the way of
    /// every other event, and moves `to` on.
    pub sums_from: Vec<Offset>,
    /// An operator has paused its consumers.
    pub is_paused: bool,
}

/// One generation of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    pub number: u16,
    /// For each partition that the topic had: where the records of this generation begin.
    pub begins: Vec<Offset>,
}

impl Generation {
    /// Returns how many partitions the topic had in this generation.
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.begins.len()).expect("a topic has few partitions")
    }
}

impl Topic {
    /// Describes a topic that is read for the first time and whose partitions begin at `begins`. Records that were
    /// deleted before are no loss.
    pub fn first(id: TopicId, begins: Vec<Offset>) -> Self {
        Self::adopted(id, 1, begins)
    }

    /// Describes a topic that was created anew, or whose former generations are unknown: all its records are of
    /// generation `number`.
    pub fn adopted(id: TopicId, number: u16, begins: Vec<Offset>) -> Self {
        Self { id, generations: vec![Generation { number, begins }], sums_from: Vec::new(), is_paused: false }
    }

    /// Returns the topic with a next generation that begins at these offsets. Returns `None` where the generations are
    /// used up.
    pub fn continued(&self, begins: Vec<Offset>) -> Option<Self> {
        let number = self.current().number.checked_add(1).filter(|number| *number <= Version::MAX_GENERATION)?;
        let mut next = self.clone();
        next.generations.push(Generation { number, begins });
        Some(next)
    }

    /// Returns the current generation.
    pub fn current(&self) -> &Generation {
        self.generations.last().expect("a topic has one generation at least")
    }

    /// Returns where the topic's records begin in a partition. Returns `None` where the deployment does not know the
    /// partition.
    pub fn begin_of(&self, index: u32) -> Option<Offset> {
        self.generations.iter().find_map(|generation| generation.begins.get(index as usize)).copied()
    }

    /// Returns the version of the event about `subject` in the record at `offset`: routed if the subject hashed to
    /// this partition in the record's generation.
    pub fn version(&self, partition: &Partition, offset: Offset, subject: &str) -> Version {
        let generation = self.generation_of(partition.index, offset);
        let routed = partition_of(subject.as_bytes(), generation.partitions()) == partition.index;
        Version::new(generation.number, routed, offset)
    }

    /// Returns the version of a sum's event. It counts as routed, since a sum's events may come through any partition.
    pub fn version_of_sum(&self, index: u32, offset: Offset) -> Version {
        Version::new(self.generation_of(index, offset).number, true, offset)
    }

    /// Returns whether the record at `offset` adds to sums.
    pub fn adds(&self, index: u32, offset: Offset) -> bool {
        self.sums_from.get(index as usize).is_none_or(|from| *from <= offset)
    }

    /// Returns the generation of the record at `offset`.
    pub fn generation_of(&self, index: u32, offset: Offset) -> &Generation {
        let has =
            |generation: &&Generation| generation.begins.get(index as usize).is_some_and(|begin| *begin <= offset);
        self.generations.iter().rev().find(has).unwrap_or(&self.generations[0])
    }
}
