//! What tables are called.

/// Every table of a deployment, without the prefix.
pub(super) const NAMES: [&str; 4] = [LIKES, COUNTS, CHECKPOINTS, "recounts"];
pub(super) const LIKES: &str = "likes";
pub(super) const COUNTS: &str = "like_counts";
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// The tables' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// What every name begins with.
    pub prefix: String,
    /// Rows, and the recount's markers beside them.
    pub likes: String,
    /// One item per counter.
    pub counts: String,
    /// Fences, what is stored of the log `changes`, the deployment's configuration.
    pub checkpoints: String,
    /// Runs, the queue, the ledgers, milestones.
    pub recounts: String,
}

impl Tables {
    /// The tables of a deployment, each name behind `prefix`.
    pub fn with_prefix(prefix: &str) -> Self {
        let [likes, counts, checkpoints, recounts] = NAMES.map(|name| format!("{prefix}{name}"));
        Self { prefix: prefix.to_owned(), likes, counts, checkpoints, recounts }
    }

    /// Each table: its name without the prefix, and its name.
    pub(super) fn each(&self) -> [(&str, &str); 4] {
        [&self.likes, &self.counts, &self.checkpoints, &self.recounts]
            .map(|name| (name.strip_prefix(&self.prefix).unwrap_or(name), name.as_str()))
    }
}
