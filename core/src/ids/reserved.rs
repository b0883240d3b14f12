//! Sort keys of the table `likes` that belong to no member but are reserved for other items: the marker of a recount,
//! the cell of a sum, and the canary, which shows how late the stream is. Each begins with U+0001, which no id has.

use std::fmt;

/// The first character of every reserved sort key.
pub const RESERVED: char = '\u{1}';

/// The item under a reserved sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedKey<'a> {
    /// The marker that a recount puts beside rows.
    Recount,
    /// The cell of a sum, with what one Kafka partition has added: the only reserved item that counts.
    Cell {
        /// The topic, which has no slash.
        topic: &'a str,
        /// The Kafka partition.
        partition: u32,
    },
    /// A row that shows relays how late the stream is.
    Canary,
    /// An item that this version does not know, by its key without the U+0001. It counts nothing.
    Other(&'a str),
}

impl<'a> ReservedKey<'a> {
    const RECOUNT: &'static str = "recount";
    const CANARY: &'static str = "canary";
    const CELL: &'static str = "cell/";

    /// Reads a reserved sort key. Returns `None` for a key that is not reserved.
    pub fn read(sort: &'a str) -> Option<Self> {
        let name = sort.strip_prefix(RESERVED)?;
        Some(match name {
            Self::RECOUNT => Self::Recount,
            Self::CANARY => Self::Canary,
            _ => name.strip_prefix(Self::CELL).and_then(Self::cell).unwrap_or(Self::Other(name)),
        })
    }

    fn cell(place: &'a str) -> Option<Self> {
        let (topic, partition) = place.split_once('/')?;
        let canonical = partition.parse().ok().filter(|index: &u32| index.to_string() == partition);
        canonical.filter(|_| !topic.is_empty()).map(|partition| Self::Cell { topic, partition })
    }

    /// Returns whether an item under it is part of a count.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Cell { .. })
    }
}

impl fmt::Display for ReservedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recount => write!(f, "{RESERVED}{}", Self::RECOUNT),
            Self::Cell { topic, partition } => write!(f, "{RESERVED}{}{topic}/{partition}", Self::CELL),
            Self::Canary => write!(f, "{RESERVED}{}", Self::CANARY),
            Self::Other(name) => write!(f, "{RESERVED}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_key_survives_being_written_and_read() {
        for (sort, key) in [
            ("\u{1}recount", ReservedKey::Recount),
            ("\u{1}canary", ReservedKey::Canary),
            ("\u{1}cell/views/11", ReservedKey::Cell { topic: "views", partition: 11 }),
            ("\u{1}cell/views/011", ReservedKey::Other("cell/views/011")),
            ("\u{1}", ReservedKey::Other("")),
        ] {
            assert_eq!(ReservedKey::read(sort), Some(key));
            assert_eq!(key.to_string(), sort);
        }
        for sort in ["", "u", "recount", " \u{1}recount"] {
            assert_eq!(ReservedKey::read(sort), None, "{sort:?}");
        }
    }

    #[test]
    fn a_cell_names_a_topic_and_a_partition_in_canonical_decimal() {
        for place in ["", "views", "/1", "views/", "views/-1", "views/+1", "views/1/2", "views/4294967296", "views/x"] {
            let sort = format!("\u{1}cell/{place}");
            assert!(ReservedKey::read(&sort).is_some_and(|key| !key.is_counted()), "{place:?}");
        }
    }
}
