//! Looks at the local stack once a second, through the services' own ports, and stores what it saw as the snapshot that
//! the page and the terminal show.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::LedgerEntry;
use tally_adapters::dynamodb::changes::StoredShard;
use tally_core::audit::{RunRecord, RunScope};
use tally_core::definitions::SubjectField;
use tally_core::ids::{CounterId, CounterKind, PostId};
use tally_core::lineage::Listed;
use tally_core::ports::{ChangeStream as _, Outcome};
use tally_core::time::UnixMillis;
use tally_service::{Stop, Task};
use tokio::time::Instant;

use crate::engine::Store;
use crate::local::Local;
use crate::page::{
    Corrected, Correction, Drift, Limit, Load, Part, PartState, Recount, ShardState, StreamShard, Trended, Trending,
};
use crate::probe::Client;
use crate::services::{Services, WINDOWS};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);
/// How many looks until it looks at the recounts again, which takes a query for each post corrected.
const RECOUNTS_EVERY: u32 = 3;
/// How many looks until there is a list, about: its moment lies some seconds back.
const LISTED_AFTER: u32 = 6;
/// Posts shown, and posts whose corrections are.
const POSTS: usize = 12;
/// Posts among which the hottest are looked for.
const RANKED: usize = 2_000;
/// The share of the rate it aims at that the load has to make.
const ENOUGH: f64 = 0.9;

/// The task that looks.
pub(crate) struct Observer {
    local: Arc<Local>,
    looks: u32,
    recounts: Recounts,
    api: Client,
    /// Looks since what is trending is up.
    up: u32,
    /// When it looked last, and what the load had done then.
    last: (Instant, Done),
}

/// What the load has done so far.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Events that Kafka acknowledged.
    made: u64,
    /// Events that are in the rows.
    applied: u64,
    /// Events that waited at the gate.
    held: u64,
    /// Whether it is not paused.
    running: bool,
}

impl Observer {
    pub(crate) fn new(local: Arc<Local>) -> Self {
        let api = Client::new(local.api);
        Self { local, looks: 0, recounts: Recounts::default(), api, up: 0, last: (Instant::now(), Done::default()) }
    }

    /// One look. What cannot be read now stays as it was seen last.
    async fn look(&mut self) {
        let local = Arc::clone(&self.local);
        let Local { clock, engines, ledger, staleness, board, .. } = &*local;
        let store = &engines.store;
        let mut seen = board.lock().clone();
        let now = clock.now();
        seen.at = now.0;
        seen.rows = match &store.emulator {
            // Tombstones have a time at which they are deleted, and are no rows.
            Some(emulator) => {
                let likes = emulator.stats().tables.remove(store.likes()).unwrap_or_default();
                likes.items.saturating_sub(likes.expiring) as u64
            }
            None => ledger.rows(),
        };
        seen.staleness = staleness.recent();
        seen.parts = self.parts();
        seen.posts = self.hottest();
        if seen.trending.is_none() {
            seen.trending = self.trending().await;
        }
        if let Ok(losses) = store.tables.changes.losses().await {
            seen.open_gaps = losses.open().count();
        }
        if let Ok(shards) = self.shards(now).await {
            seen.shards = shards;
        }
        if self.looks.is_multiple_of(RECOUNTS_EVERY) {
            self.recounts.look(store).await;
            (seen.drift, seen.recount) = (self.recounts.drift, self.recounts.recount);
            seen.ledger.clone_from(&self.recounts.ledger);
            seen.ledger_more = self.recounts.more;
        }
        seen.load = self.load();
        seen.mirror = local.abroad.as_ref().map(|abroad| *abroad.mirror.borrow());
        self.looks += 1;
        *self.local.board.lock() = seen;
    }

    fn load(&mut self) -> Load {
        let Local { gate, ledger, paused, load, .. } = &*self.local;
        let running = load.is_some() && !*paused.borrow();
        let done = Done { made: ledger.events(), applied: gate.applied(), held: gate.held(), running };
        let (now, rate) = (Instant::now(), load.map_or(0, |load| load.rate));
        let (then, before) = std::mem::replace(&mut self.last, (now, done));
        let seconds = (now - then).as_secs_f64().max(0.001);
        Load {
            running,
            rate: rate.into(),
            events_per_second: per_second(done.applied.saturating_sub(before.applied), seconds),
            events: done.made,
            limit: limit(rate, &before, &done, seconds),
        }
    }

    fn parts(&self) -> Vec<Part> {
        let engine = |name: &str, up| {
            let state = if up { PartState::Up } else { PartState::Down };
            Part { name: name.to_owned(), state, restarts: 0 }
        };
        let Services { consumer, streamer, recount, api, trends } = &self.local.services;
        let mut parts = vec![
            engine("kafka", true),
            consumer.shown(),
            engine("dynamodb", true),
            streamer.shown(),
            recount.shown(),
            engine("cache", self.local.engines.cache.is_on()),
            api.shown(),
        ];
        parts.extend(trends.iter().map(|trends| trends.shown()));
        let abroad = self.local.abroad.iter().flat_map(|abroad| abroad.us.services.all());
        parts.extend(abroad.map(|service| service.shown()));
        parts
    }

    /// What lists there are, once the API has one. It is not asked before there is likely to be one: each refusal is a line of
    /// its log.
    async fn trending(&mut self) -> Option<Trending> {
        let Local { services, counters, ledger, .. } = &*self.local;
        let is_up = services.trends.as_ref()?.shown().state == PartState::Up;
        self.up = if is_up { self.up + 1 } else { 0 };
        if self.up < LISTED_AFTER {
            return None;
        }
        self.api.get(&format!("/v1/top?window={}", WINDOWS[0])).await.ok()?;
        let counters = counters.all.iter().map(|definition| Trended {
            name: definition.name.as_str().to_owned(),
            hashtags: definition.subject == SubjectField::Hashtag,
            regions: definition.kind() == CounterKind::Set,
        });
        let regions = ledger.names.regions.iter().map(ToString::to_string);
        let windows = WINDOWS.map(str::to_owned).to_vec();
        Some(Trending { counters: counters.collect(), regions: regions.collect(), windows })
    }

    fn hottest(&self) -> Vec<String> {
        let ledger = &self.local.ledger;
        let ranked = ledger.names.load_posts.min(RANKED);
        let mut posts: Vec<usize> = (0..ranked).collect();
        posts.sort_by_cached_key(|post| std::cmp::Reverse(ledger.likes(*post)));
        posts.truncate(POSTS);
        posts.iter().map(|post| ledger.names.posts[*post].to_string()).collect()
    }

    async fn shards(&self, now: UnixMillis) -> Outcome<Vec<StreamShard>> {
        let store = &self.local.engines.store;
        let label = store.tables.stream.info().await?.label;
        let stored = store.tables.changes.shards(&label).await?;
        let listed = store.tables.stream.shards(&label).await?;
        Ok(tree(&stored, &listed, now))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a second has far fewer than 2^52 events")]
fn per_second(events: u64, seconds: f64) -> f64 {
    events as f64 / seconds
}

/// Why the load made fewer events than it aims at, if it did for the whole time between two looks.
fn limit(rate: u32, before: &Done, now: &Done, seconds: f64) -> Option<Limit> {
    let (made, held) = (now.made.saturating_sub(before.made), now.held.saturating_sub(before.held));
    if !(before.running && now.running) || per_second(made, seconds) >= f64::from(rate) * ENOUGH {
        return None;
    }
    Some(if held > made / 10 { Limit::Gate } else { Limit::Generator })
}

/// The shards listed, parents before children.
fn tree(stored: &[StoredShard], listed: &[Listed], now: UnixMillis) -> Vec<StreamShard> {
    let shown = |shard: &Listed| {
        let stored = stored.iter().find(|stored| stored.shard.id() == shard.id);
        let done = stored.is_some_and(|stored| stored.closed.is_some());
        let state = match (done, shard.ended) {
            (true, _) => ShardState::Done,
            (false, true) => ShardState::Closing,
            (false, false) => ShardState::Open,
        };
        let reading = stored.filter(|_| !done);
        StreamShard {
            id: shard.id.to_string(),
            parent: shard.parent.as_ref().map(ToString::to_string),
            state,
            lag_ms: reading.map(|stored| now.0.saturating_sub(stored.fed.at.0)),
        }
    };
    let mut shards: Vec<&Listed> = listed.iter().collect();
    shards.sort_by_cached_key(|shard| (depth(shard, listed), shard.id.to_string()));
    shards.into_iter().map(shown).collect()
}

/// How many of the listed shards a shard descends from.
fn depth(shard: &Listed, listed: &[Listed]) -> usize {
    let parent = |shard: &&Listed| listed.iter().find(|other| shard.parent.as_ref() == Some(&other.id));
    std::iter::successors(Some(shard), parent).take(listed.len()).count()
}

impl Task for Observer {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        loop {
            stop.unless_requested(self.look()).await?;
            stop.unless_requested(tokio::time::sleep(EVERY)).await?;
        }
    }
}

/// Runs looked through.
const RUNS: u32 = 200;
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
        let Ok(runs) = store.tables.recounts.runs(RUNS).await else { return };
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
        corrected: run.summary.corrections(),
    }
}

/// What recounts found in all: likes that counts were off by, and corrections.
pub(crate) fn drift(runs: &[RunRecord]) -> Drift {
    runs.iter().fold(Drift::default(), |drift, run| Drift {
        runs: drift.runs + u64::from(run.ended.is_some()),
        found: drift.found + run.summary.likes_added + run.summary.likes_taken,
        corrected: drift.corrected + run.summary.corrections(),
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
        if let Ok(lines) = store.tables.recounts.ledger(&CounterId::likes(post.clone()), LINES).await {
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
    use tally_core::ids::{Shard, StreamLabel, StreamShard as Id};
    use tally_core::relay::Fed;
    use tally_core::time::UnixMillis;

    use super::*;

    #[test]
    fn the_tree_says_of_every_shard_where_it_is_in_its_life() {
        let listed =
            |id: &str, parent: Option<&str>, ended| Listed { id: id.into(), parent: parent.map(Into::into), ended };
        let stored = |id: &str, closed: Option<u64>| StoredShard {
            shard: Id::new(&StreamLabel::from("label"), &id.into()),
            parent: None,
            fed: Fed { to: None, at: UnixMillis(1_000) },
            closed: closed.map(UnixMillis),
            lease: None,
        };
        let known = [stored("z", Some(1_200)), stored("b", None), stored("a", None)];
        let listing = [
            listed("a", Some("z"), false),
            listed("b", Some("z"), true),
            listed("c", Some("b"), false),
            listed("z", None, true),
        ];
        let tree = tree(&known, &listing, UnixMillis(1_250));
        let seen: Vec<_> = tree.iter().map(|shard| (shard.id.as_str(), shard.state, shard.lag_ms)).collect();
        let expected = [
            ("z", ShardState::Done, None),
            ("a", ShardState::Open, Some(250)),
            ("b", ShardState::Closing, Some(250)),
            ("c", ShardState::Open, None),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_load_that_makes_less_than_it_aims_at_says_what_held_it_back() {
        let done = |made, held, running| Done { made, applied: 0, held, running };
        let start = done(0, 0, true);
        assert_eq!(limit(1_000, &start, &done(950, 900, true), 1.0), None, "it makes what it aims at");
        assert_eq!(limit(1_000, &start, &done(500, 400, true), 1.0), Some(Limit::Gate));
        assert_eq!(limit(1_000, &start, &done(500, 3, true), 1.0), Some(Limit::Generator));
        assert_eq!(limit(1_000, &done(0, 0, false), &done(100, 0, true), 1.0), None, "it was paused meanwhile");
        assert_eq!(limit(0, &done(0, 0, false), &done(0, 0, false), 1.0), None, "there is no load");
    }

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
}
