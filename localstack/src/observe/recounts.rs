//! What recounts have found and done, as the page shows it.

use tally_adapters::dynamodb::LedgerEntry;
use tally_core::audit::{RunRecord, RunScope};
use tally_core::ids::{CounterId, PostId};

use crate::engine::Store;
use crate::page::{Corrected, Correction, Drift, Recount};

/// Runs looked through.
const RUNS: u32 = 200;
/// Posts whose corrections are shown.
const POSTS: usize = 12;
/// Posts whose ledger is read: what a run names need not have been changed.
const LOOKED: usize = 40;
/// Lines of one post's ledger that are looked through. Most of them say that nothing had to be changed.
const LINES: u32 = 500;

/// What was seen of recounts last.
#[derive(Debug, Default)]
pub(super) struct Recounts {
    pub(super) drift: Drift,
    pub(super) recount: Option<Recount>,
    pub(super) ledger: Vec<Corrected>,
    /// Posts that were corrected and are not on `ledger`.
    pub(super) more: u64,
    /// The posts that runs named when the ledger was read, and the corrections there were.
    read: Option<(Vec<PostId>, u64)>,
}

impl Recounts {
    /// One look. What cannot be read now stays as it was seen last.
    pub(super) async fn look(&mut self, store: &Store) {
        let Ok(runs) = store.recounts.runs(RUNS).await else { return };
        self.drift = drift(&runs);
        if let Some(run) = runs.iter().find(|run| run.scope == RunScope::Audit) {
            self.recount = Some(recount(run));
        }
        let now = (named(&runs), self.drift.corrected);
        if self.read.as_ref() != Some(&now) {
            let mut all = corrected(store, &now.0).await;
            self.more = all.len().saturating_sub(POSTS) as u64;
            all.truncate(POSTS);
            self.ledger = all;
            self.read = Some(now);
        }
    }
}

fn recount(run: &RunRecord) -> Recount {
    Recount {
        began: run.began.0,
        ended: run.ended.map(|ended| ended.0),
        rows: run.summary.rows,
        doubted: run.summary.doubted,
        settled: run.summary.settled,
        found: run.summary.found(),
        corrected: run.summary.corrected + run.summary.totals_mended,
    }
}

/// What recounts found in all: likes that counts were off by, and corrections.
pub(crate) fn drift(runs: &[RunRecord]) -> Drift {
    runs.iter().fold(Drift::default(), |drift, run| Drift {
        runs: drift.runs + u64::from(run.ended.is_some()),
        found: drift.found + run.summary.likes_added + run.summary.likes_taken,
        corrected: drift.corrected + run.summary.corrected + run.summary.totals_mended,
    })
}

/// The posts that runs found wrong and may have corrected, as far as they list them, the newest first.
fn named(runs: &[RunRecord]) -> Vec<PostId> {
    let mut posts = Vec::new();
    let corrects = runs.iter().filter(|run| !run.dry_run);
    for example in corrects.flat_map(|run| run.summary.examples.iter().rev()) {
        let Ok(post) = PostId::new(post_of(&example.key)) else { continue };
        if !posts.contains(&post) {
            posts.push(post);
        }
        if posts.len() == LOOKED {
            break;
        }
    }
    posts
}

/// A total is named by its post alone, a shard by its row key.
fn post_of(key: &str) -> &str {
    match key.rsplit_once('#') {
        Some((post, shard)) if !shard.is_empty() && shard.bytes().all(|byte| byte.is_ascii_digit()) => post,
        _ => key,
    }
}

/// What corrections have done to `posts`, the last correction first.
async fn corrected(store: &Store, posts: &[PostId]) -> Vec<Corrected> {
    let mut all = Vec::new();
    for post in posts {
        if let Ok(lines) = store.recounts.ledger(&CounterId::likes(post.clone()), LINES).await {
            all.extend(together(&lines));
        }
    }
    all.sort_by_key(|corrected| std::cmp::Reverse(corrected.last.at));
    all
}

/// A post's lines, newest first, as one; nothing where none of them changed anything.
fn together(lines: &[LedgerEntry]) -> Option<Corrected> {
    let changes: Vec<&LedgerEntry> = lines.iter().filter(|line| line.before != line.after).collect();
    let last = changes.first()?;
    Some(Corrected {
        post_id: last.counter.post.to_string(),
        corrections: changes.len() as u64,
        by: changes.iter().fold(0, |by, line| by.saturating_add(line.after.saturating_sub(line.before))),
        last: Correction {
            at: last.at.0,
            shard: last.shard.map(|shard| shard.index()),
            before: last.before,
            after: last.after,
            why: last.why.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use tally_core::audit::{AuditRun, Cause, Drift, Summary};
    use tally_core::ids::Shard;
    use tally_core::time::UnixMillis;

    use super::*;

    fn run(summary: Summary, ended: Option<u64>) -> RunRecord {
        RunRecord {
            run: AuditRun::from(1),
            began: UnixMillis(7),
            ended: ended.map(UnixMillis),
            scope: RunScope::Audit,
            dry_run: false,
            summary,
        }
    }

    fn line(at: u64, shard: u16, before: i64, after: i64) -> LedgerEntry {
        let counter = CounterId::likes(PostId::new("p").unwrap());
        let (shard, why) = (Shard::new(shard), "unproved".to_owned());
        LedgerEntry { counter, shard, at: UnixMillis(at), run: 1.into(), by: String::new(), before, after, why }
    }

    #[test]
    fn drift_is_what_all_runs_found_together() {
        let first = Summary { likes_added: 3, likes_taken: 1, corrected: 2, totals_mended: 1, ..Summary::default() };
        let found = drift(&[run(first, Some(1)), run(Summary::default(), None)]);
        assert_eq!((found.runs, found.found, found.corrected), (1, 4, 3));
    }

    #[test]
    fn the_posts_looked_at_are_those_of_the_newest_runs_that_corrected() {
        let example = |key: &str| Drift { key: key.to_owned(), before: 0, after: 1, cause: Cause::Drift };
        let wrong = |keys: &[&str]| {
            let examples = keys.iter().map(|key| example(key)).collect();
            run(Summary { examples, ..Summary::default() }, None)
        };
        let many: Vec<String> = (0..50).map(|n| format!("a{n}#1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let dry = RunRecord { dry_run: true, ..wrong(&["dry#1"]) };
        let posts = named(&[dry, wrong(&["p#1#4", "q#", "z#0", "z#1"]), wrong(&many)]);
        let posts: Vec<&str> = posts.iter().map(PostId::as_str).collect();
        assert_eq!(posts[..5], ["z", "q#", "p#1", "a49", "a48"]);
        assert_eq!(posts.len(), LOOKED);
    }

    #[test]
    fn a_correction_is_not_hidden_by_lines_that_changed_nothing() {
        let mut lines = vec![line(9, 1, 49, 49); 100];
        lines.extend([line(5, 3, 43, 36), line(4, 3, 7, 7), line(3, 2, 10, 12)]);
        let corrected = together(&lines).unwrap();
        assert_eq!((corrected.corrections, corrected.by), (2, -5));
        let last = &corrected.last;
        assert_eq!((last.at, last.shard, last.before, last.after), (5, Some(3), 43, 36));
        assert_eq!(together(&lines[..100]), None);
    }

    #[test]
    fn a_run_says_how_far_it_is() {
        let found = Summary { rows: 40, corrected: 1, ..Summary::default() };
        let seen = recount(&run(found, None));
        assert_eq!((seen.began, seen.ended, seen.rows, seen.corrected), (7, None, 40, 1));
    }
}
