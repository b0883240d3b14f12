//! What an emulator did and holds, in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

/// A snapshot for tests and for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// What the clock shows, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Requests that could be read, by operation.
    pub requests: BTreeMap<String, u64>,
    /// Faults that fired, by operation and fault.
    pub faults: BTreeMap<String, BTreeMap<String, u64>>,
    /// Ghosts that wait to be carried out.
    pub ghosts_pending: usize,
    /// Ghosts that were carried out, refused ones among them.
    pub ghosts_applied: u64,
    /// Requests that made the emulator panic; each was answered with a 500, and is a bug.
    pub panics: u64,
    pub tables: BTreeMap<String, TableStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableStats {
    pub items: usize,
    /// Those of them that have a time at which they are deleted.
    pub expiring: usize,
    /// The sizes of all together.
    pub bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamStats {
    pub label: String,
    /// Ids of the open shards, by the start of their interval.
    pub open_shards: Vec<String>,
    /// Shards that can be described.
    pub shards: usize,
    /// Records that can be read, now or soon.
    pub records: usize,
}

impl Stats {
    /// How often a fault fired, over all operations.
    pub fn fired(&self, fault: &str) -> u64 {
        self.faults.values().filter_map(|by_fault| by_fault.get(fault)).sum()
    }
}
