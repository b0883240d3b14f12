//! Names of places in Kafka: topics, partitions, offsets.

use std::fmt;

/// The position of a record in its Kafka partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub topic: Box<str>,
    pub index: u32,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

/// Tells a topic from a later one of the same name: its id, or its name where the broker has no ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopicId(pub Box<str>);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bounds of a partition's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    pub topic: TopicId,
    /// The offset of the first record that is still there.
    pub start: Offset,
    /// The offset that the next record will have.
    pub end: Offset,
}
