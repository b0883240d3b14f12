//! Statistics of an emulator.

use std::collections::BTreeMap;

use serde::Serialize;

/// A snapshot of the statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// The time of the clock, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Requests that could be parsed, by operation.
    pub requests: BTreeMap<String, u64>,
    /// Faults that fired, by operation and fault.
    pub faults: BTreeMap<String, BTreeMap<String, u64>>,
    /// Late requests that are still pending.
    pub ghosts_pending: usize,
    /// Late requests that were carried out, including refused ones.
    pub ghosts_applied: u64,
    /// Requests on which the emulator panicked. Each was answered with 500, and is a bug.
    pub panics: u64,
    pub tables: BTreeMap<String, TableStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableStats {
    pub items: usize,
    /// Items with an expiry.
    pub expiring: usize,
    /// The total size of the items.
    pub bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamStats {
    pub label: String,
    /// The ids of the open shards, by the start of their range.
    pub open_shards: Vec<String>,
    /// The number of shards, including closed ones.
    pub shards: usize,
    /// Records that can be read now or soon.
    pub records: usize,
}

impl Stats {
    /// How often a fault fired, over all operations.
    pub fn fired(&self, fault: &str) -> u64 {
        self.faults.values().filter_map(|by_fault| by_fault.get(fault)).sum()
    }
}
