//! What this process has found for a run: gathered, counted as metrics, and put where every process that takes part in the
//! run can add it up.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_core::audit::{AuditRun, Cause, Drift, Summary};
use tally_core::ports::Worker;

use crate::cost::dollars;
use crate::metrics;
use crate::store::Store;

/// A summary while it grows.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<Summary>);

impl Findings {
    pub(crate) fn scanned(&self, rows: u64) {
        self.lock().rows += rows;
        metrics::rows(rows);
    }

    pub(crate) fn counters(&self, posts: u64) {
        self.lock().posts += posts;
    }

    pub(crate) fn proved(&self, keys: u64) {
        self.lock().proved += keys;
        metrics::keys("proved", keys);
    }

    pub(crate) fn corrected(&self, drift: Drift) {
        let correction = drift.after.saturating_sub(drift.before);
        metrics::corrected(if drift.cause == Cause::Total { "total" } else { "shard" }, correction);
        metrics::drift(drift.cause);
        self.lock().corrected(drift);
    }

    pub(crate) fn withheld(&self, drift: Drift) {
        metrics::withheld();
        metrics::drift(drift.cause);
        let mut summary = self.lock();
        summary.withheld += 1;
        summary.differs(drift);
    }

    /// Row keys that a comparison left in doubt.
    pub(crate) fn doubted(&self, keys: u64) {
        self.lock().doubted += keys;
    }

    /// Those of them that are settled, or left.
    pub(crate) fn settled(&self, keys: u64) {
        self.lock().settled += keys;
    }

    /// Something differs, and a dry run leaves it so.
    pub(crate) fn differs(&self, drift: Drift) {
        metrics::drift(drift.cause);
        self.lock().differs(drift);
    }

    pub(crate) fn window(&self, repeated: bool) {
        let mut summary = self.lock();
        summary.windows += 1;
        summary.windows_repeated += u64::from(repeated);
    }

    pub(crate) fn alarm(&self) {
        metrics::alarm();
        self.lock().alarms += 1;
    }

    pub(crate) fn misplaced(&self, row: impl FnOnce() -> String) {
        metrics::misplaced(1);
        self.lock().misplaced(row);
    }

    pub(crate) fn gap_closed(&self) {
        metrics::gap_closed();
        self.lock().gaps_closed += 1;
    }

    /// What was found so far.
    pub(crate) fn so_far(&self) -> Summary {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Summary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this process has found and spent in a run.
#[derive(Clone)]
pub(crate) struct Share {
    pub(crate) run: AuditRun,
    pub(crate) findings: Arc<Findings>,
    store: Store,
    me: Worker,
}

impl Share {
    /// Nothing found yet.
    pub(crate) fn new(run: AuditRun, store: &Store, me: &Worker) -> Self {
        Self { run, findings: Arc::default(), store: store.clone(), me: me.clone() }
    }

    /// What was found here.
    pub(crate) fn own(&self) -> Summary {
        Summary { cost: self.store.cost(), ..self.findings.so_far() }
    }

    /// Keeps what was found here. Safe to repeat: what is said last stands.
    pub(crate) async fn put(&self) -> anyhow::Result<()> {
        let (share, now) = (self.own(), self.store.now());
        let put = || self.store.ports.recounts.put_share(self.run, &self.me, &share, now);
        self.store.persist("keep what was found", put).await?;
        self.store.wrote(1);
        Ok(())
    }

    /// What every process has found.
    pub(crate) async fn sum(&self) -> anyhow::Result<Summary> {
        let read = || self.store.ports.recounts.shares(self.run);
        let shares = self.store.persist("read what was found", read).await?;
        self.store.read_items(shares.len());
        Ok(shares.into_iter().fold(Summary::default(), |mut sum, share| {
            sum.add(share);
            sum
        }))
    }
}

/// A summary as a table for people.
pub(crate) struct Table<'a>(pub(crate) &'a Summary);

impl Table<'_> {
    /// The lines of the table, name and value.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let summary = self.0;
        let causes: Vec<String> = summary.drift.iter().map(|(cause, n)| format!("{} {n}", cause.label())).collect();
        let found =
            if causes.is_empty() { "0".to_owned() } else { format!("{} ({})", summary.found(), causes.join(", ")) };
        let corrected = format!("{} (+{} -{} likes)", summary.corrected, summary.likes_added, summary.likes_taken);
        vec![
            ("posts", summary.posts.to_string()),
            ("rows", summary.rows.to_string()),
            ("row keys proved by the audit", summary.proved.to_string()),
            ("drift found", found),
            ("corrected", corrected),
            ("totals mended", summary.totals_mended.to_string()),
            ("withheld for want of --force", summary.withheld.to_string()),
            ("windows", format!("{} ({} repeated)", summary.windows, summary.windows_repeated)),
            ("alarms", summary.alarms.to_string()),
            ("misplaced rows", summary.misplaced_rows.to_string()),
            ("row keys left", summary.left.to_string()),
            ("gaps closed", summary.gaps_closed.to_string()),
            ("read units", summary.cost.read_units.to_string()),
            ("write units", summary.cost.write_units.to_string()),
            ("cost at list price", format!("${:.4}", dollars(summary.cost))),
        ]
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.lines() {
            writeln!(f, "{name:<30} {value}")?;
        }
        for Drift { key, before, after, cause } in &self.0.examples {
            writeln!(f, "  {key:?} {before} -> {after} ({})", cause.label())?;
        }
        self.0.misplaced.iter().try_for_each(|row| writeln!(f, "  misplaced: {row}"))
    }
}

#[cfg(test)]
mod tests {
    use tally_core::audit::Cost;

    use super::*;

    fn drift(cause: Cause, before: i64, after: i64) -> Drift {
        Drift { key: "p\n#0".to_owned(), before, after, cause }
    }

    #[test]
    fn a_summary_is_a_table_that_no_id_can_break() {
        let findings = Findings::default();
        findings.scanned(1_000);
        findings.corrected(drift(Cause::Drift, 3, 5));
        findings.corrected(drift(Cause::Negative, -1, 0));
        findings.corrected(drift(Cause::NoRows, 4, 0));
        findings.corrected(drift(Cause::Total, 9, 7));
        findings.withheld(drift(Cause::MissingCounter, 0, 5_000));
        findings.window(true);
        findings.window(false);
        findings.misplaced(|| format!("{:?} in {:?}", "u\u{1b}", "p#3"));
        let summary = Summary { cost: Cost { read_units: 12, write_units: 30 }, ..findings.lock().clone() };
        assert_eq!((summary.found(), summary.likes_added, summary.likes_taken), (5, 3, 4));
        insta::assert_snapshot!(Table(&summary));
    }
}
