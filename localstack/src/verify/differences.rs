//! What differs, and how often.

/// Differences listed one by one; beyond them only their number is kept.
pub(super) const LISTED: usize = 20;

#[derive(Clone, Debug, Default)]
pub(crate) struct Differences {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) listed: Vec<String>,
}

impl Differences {
    pub(super) fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(what());
        }
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.count += other.count;
        self.listed.extend(other.listed);
        self.listed.truncate(LISTED);
    }
}
