//! Records what happens in a run of the simulation: a hash of everything, by which two runs of a seed are compared, and
//! the last lines as text for people.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh64::xxh64;

/// The number of lines that are kept.
const LINES: usize = 4_000;

/// The trace of one schedule. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    origin: Instant,
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
struct Told {
    hash: u64,
    lines: VecDeque<String>,
}

impl Trace {
    /// An empty trace.
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), told: Arc::default() }
    }

    /// Adds an event to the hash and to the lines.
    pub(crate) fn record(&self, event: impl FnOnce(&mut String)) {
        let mut line = format!("{:>9} ", self.origin.elapsed().as_millis());
        event(&mut line);
        let mut told = self.told.lock();
        told.hash = xxh64(line.as_bytes(), told.hash);
        if told.lines.len() == LINES {
            told.lines.pop_front();
        }
        told.lines.push_back(line);
    }

    /// Adds a short text.
    pub(crate) fn note(&self, text: &str) {
        self.record(|line| line.push_str(text));
    }

    /// The hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        self.told.lock().hash
    }

    /// The last lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.told.lock().lines.iter().cloned().collect()
    }
}
