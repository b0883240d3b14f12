//! Verifies a run of the local stack: waits until every event of the load is counted, then compares the rows with the
//! ledger of what Kafka acknowledged, and the counts and the API's answers with the rows.
//!
//! Every event is counted once the consumer has come to the end of each partition and the change-streamer has counted
//! every change up to that moment. The wait is bounded; what is not reached is reported, and the comparison is made all
//! the same.

mod compare;
mod lists;
pub(crate) mod sightings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::ready;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tally_adapters::dynamodb::Segment;
use tally_core::definitions::SubjectField;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId};
use tally_core::time::UnixMillis;
use tally_service::Stop;
use tokio::time::Instant;

use crate::local::Local;
use crate::observe;
use crate::page::{Drift, Staleness};
use crate::probe::Client;
use crate::verify::compare::{Compared, Rows, Shown, compared, counters_with_rows, rows_with_ledger, served_with_rows};

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

/// How long each step towards quiet may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the API may go on answering from what it remembers.
const MEMORY: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The most counters in one question to the API.
const MOST: usize = 400;

/// All of one table, in one part.
const WHOLE: Segment = Segment { index: 0, of: 1 };

/// The counts table as it was read.
type CountsTable = BTreeMap<CounterId, Counter>;

/// What the comparison found, and whether everything agrees and nothing had to be corrected to make it so.
pub(crate) struct Comparison {
    pub(crate) said: String,
    pub(crate) is_clean: bool,
}

/// Waits and compares.
///
/// # Errors
/// Tables or API that cannot be read, and a stop.
pub(crate) async fn run(local: &Local, stop: &Stop) -> anyhow::Result<Comparison> {
    stop.unless_requested(Verify(local).run()).await?
}

struct Verify<'a>(&'a Local);

impl Verify<'_> {
    async fn run(&self) -> anyhow::Result<Comparison> {
        let mut unreached: Vec<String> = self.quiet().await.into_iter().map(str::to_owned).collect();
        let abroad = self.0.abroad.as_ref().map(|abroad| Verify(&abroad.us));
        if let Some(us) = &abroad {
            unreached.extend(us.quiet().await.into_iter().map(|step| format!("in us: {step}")));
        }
        self.0.screen.step("comparing every row and every count");
        let (rows, counters, mut differences) = self.tables().await?;
        let mut regions = String::new();
        match &abroad {
            Some(us) => regions = line("regions", self.sums(us, &rows, &counters, &mut differences).await?),
            None => differences.extend(self.answers(&[&rows], &counters, MEMORY).await?),
        }
        let mut lists = String::new();
        if self.0.services.trends.is_some() {
            lists = line("trending", self.lists(&rows, &mut differences).await?);
        }
        let Drift { corrected, runs, .. } = self.drift(&mut differences).await?;
        let mut said = self.figures(&rows, &counters);
        said.push_str(&line("drift", format!("{corrected} corrections in {runs} recounts")));
        said.push_str(&(lists + &regions));
        said.push_str(&line("differences", differences.count));
        let late = |step: &String| format!("\n  not reached: after {} s {step}", PATIENCE.as_secs());
        said.extend(unreached.iter().map(late));
        said.extend(differences.listed.iter().map(|difference| format!("\n    {difference}")));
        Ok(Comparison { said, is_clean: differences.count == 0 && unreached.is_empty() })
    }

    /// What was compared and measured.
    fn figures(&self, rows: &Rows, counters: &CountsTable) -> String {
        let Local { ledger, staleness, .. } = self.0;
        let mut said =
            "compared: each row of the load with what was said last, each sum with what was acknowledged, every \
                        count and every answer about a post with its rows"
                .to_owned();
        said.push_str(&line("events", ledger.events()));
        for (name, Compared { rows, counts, total }) in compared(rows, counters) {
            let rows_are = match name.kind() {
                CounterKind::Set => "rows",
                CounterKind::Sum => "cells",
            };
            said.push_str(&line(name.as_str(), format!("{rows} {rows_are}, {counts} counts that come to {total}")));
        }
        let open = ledger.views.total().open;
        if open > 0 {
            said.push_str(&line("open", format!("{open} views were never acknowledged, and may count or not")));
        }
        said.push_str(&line("posts", self.posts(counters).len()));
        let staleness = match staleness.overall() {
            (Some(Staleness { p50_ms, p99_ms }), samples) => {
                format!("p50 {p50_ms:.0} ms, p99 {p99_ms:.0} ms ({samples} samples)")
            }
            (None, _) => "never measured".to_owned(),
        };
        said + &line("staleness", staleness)
    }

    /// What recounts have found, which has to be nothing where nobody put a count wrong.
    async fn drift(&self, differences: &mut Differences) -> anyhow::Result<Drift> {
        let drift = observe::drift(&self.0.engines.store.tables.recounts.runs(u32::MAX).await?);
        if drift.corrected > 0 && self.0.injected.load(Ordering::Relaxed) == 0 {
            differences.add(|| format!("recounts made {} corrections of counts that were right", drift.corrected));
        }
        Ok(drift)
    }

    /// Waits for quiet; what was not reached.
    async fn quiet(&self) -> Vec<&'static str> {
        let Local { engines, gate, clock, .. } = self.0;
        let mut unreached = Vec::new();
        let pending = || engines.store.emulator.as_ref().map_or(0, |emulator| emulator.stats().ghosts_pending);
        if !self.waited("waiting for requests that are late", || ready(pending() == 0)).await {
            unreached.push("requests that their clients gave up on were still to come");
        }
        if !self.waited("waiting until every event is in the rows", || ready(gate.backlog() == 0)).await {
            unreached.push("the consumer had not come to the end of the log");
        }
        let since = clock.now();
        let counted = || async { self.read_up_to().await.is_some_and(|up_to| up_to > since) };
        if !self.waited("waiting until every change is counted", counted).await {
            unreached.push("the streamer had not counted every change");
        }
        unreached
    }

    /// Waits until `holds`; whether it came to that.
    async fn waited<F: Future<Output = bool>>(&self, doing: &'static str, holds: impl Fn() -> F) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            if Instant::now() >= deadline {
                return false;
            }
            self.0.screen.step(doing);
            self.0.clock.sleep(LOOK_EVERY).await;
        }
        true
    }

    /// Up to when everything written to the likes table is in the counters.
    async fn read_up_to(&self) -> Option<UnixMillis> {
        let log = &self.0.engines.store.tables.changes;
        let partitions = log.config().await.ok()??.partitions;
        let standings = log.standings(partitions).await.ok()?;
        if standings.len() < partitions as usize {
            return None;
        }
        standings.values().map(|stated| stated.standing.as_of).min()?
    }

    /// The tables, compared with the ledger and with each other.
    async fn tables(&self) -> anyhow::Result<(Rows, CountsTable, Differences)> {
        let (store, ledger) = (&self.0.engines.store, &self.0.ledger);
        let shards = store.tables.checkpoints.config(None).await?;
        let (mut rows, mut after) = (Rows::default(), None);
        loop {
            let page = store.tables.rows.scan(WHOLE, after.as_ref()).await?;
            page.items.iter().for_each(|row| rows.take(row, &ledger.names, shards));
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        let (mut counters, mut after) = (BTreeMap::new(), None);
        loop {
            let page = store.tables.counters.scan(WHOLE, after.as_ref()).await?;
            for (post, counter) in page.items {
                counters.insert(post, counter?);
            }
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        let mut differences = rows_with_ledger(&rows, ledger, &self.0.counters);
        differences.extend(counters_with_rows(&counters, &rows));
        Ok((rows, counters, differences))
    }

    /// Compares the second Region, and the sums. Both need a while: what a Region has published goes through the mirror, and is
    /// gathered for some seconds.
    async fn sums(
        &self,
        us: &Verify<'_>,
        rows: &Rows,
        counters: &CountsTable,
        differences: &mut Differences,
    ) -> anyhow::Result<String> {
        let (theirs, there, mut found) = us.tables().await?;
        us.drift(&mut found).await?;
        let both = [rows, &theirs];
        let all: CountsTable =
            counters.iter().chain(&there).map(|(id, counter)| (id.clone(), counter.clone())).collect();
        self.0.screen.step("waiting until both Regions answer the same sums");
        found.extend(us.answers(&both, &all, PATIENCE).await?);
        differences.extend(self.answers(&both, &all, PATIENCE).await?);
        found.listed.iter_mut().for_each(|difference| difference.insert_str(0, "in us: "));
        differences.extend(found);
        let (events, posts) = (us.0.ledger.events(), self.posts(&all).len());
        let rows: u64 = theirs.iter().map(|(_, rows)| rows.rows).sum();
        let us = format!("us has {rows} rows and cells of {events} events");
        Ok(format!("{us}; both APIs are asked for the sums of {posts} posts"))
    }

    /// What counts something of posts.
    fn of_posts(&self) -> Vec<CounterName> {
        let of_posts = self.0.counters.all.iter().filter(|definition| definition.subject == SubjectField::Post);
        of_posts.map(|definition| definition.name.clone()).collect()
    }

    /// The posts that have a counter.
    fn posts<'a>(&self, counters: &'a CountsTable) -> BTreeSet<&'a PostId> {
        let names = self.of_posts();
        counters.keys().filter(|id| names.contains(&id.name)).map(|id| &id.post).collect()
    }

    /// What the API answers about every post that has a counter and of the load's own, once it is right, or was not `within`
    /// this time. A hashtag's counters have other routes, and are not asked for.
    async fn answers(&self, rows: &[&Rows], counters: &CountsTable, within: Duration) -> anyhow::Result<Differences> {
        let (names, known) = (self.of_posts(), self.posts(counters));
        let posts: BTreeSet<&PostId> = known.into_iter().chain(&self.0.ledger.names.posts).collect();
        let posts: Vec<&PostId> = posts.into_iter().collect();
        let deadline = Instant::now() + within;
        let client = Client::new(self.0.api);
        loop {
            let served = ask(&client, &posts, &names).await;
            let is_over = Instant::now() >= deadline;
            match served.map(|served| served_with_rows(&served, rows)) {
                Ok(differences) if is_over || differences.count == 0 => return Ok(differences),
                Err(error) if is_over => return Err(error),
                _ => {}
            }
            self.0.clock.sleep(LOOK_EVERY).await;
        }
    }
}

/// The counters called `names` of each of `posts`, as the API answers.
async fn ask(client: &Client, posts: &[&PostId], names: &[CounterName]) -> anyhow::Result<BTreeMap<CounterId, Shown>> {
    let mut served = BTreeMap::new();
    let called: Vec<&str> = names.iter().map(CounterName::as_str).collect();
    for batch in posts.chunks((MOST / names.len().max(1)).max(1)) {
        let ids: Vec<&str> = batch.iter().map(|post| post.as_str()).collect();
        let answer = client.post("/v1/counters:batchGet", &json!({"post_ids": ids, "counters": called})).await?;
        let counts = answer["counts"].as_array().map_or(&[][..], Vec::as_slice);
        let asked = batch.iter().flat_map(|post| names.iter().map(|name| (*post, name)));
        let asked: Vec<CounterId> =
            asked.map(|(post, name)| CounterId { post: post.clone(), name: name.clone() }).collect();
        anyhow::ensure!(counts.len() == asked.len(), "the API answered {} of {} counters", counts.len(), asked.len());
        for (id, count) in asked.into_iter().zip(counts) {
            let value = count["value"].as_i64().with_context(|| format!("{id}: the API answers {count}"))?;
            let is = |claim: &str| count[claim].as_bool().unwrap_or_default();
            served.insert(id, Shown { value, exact: is("exact"), fresh: is("fresh") });
        }
    }
    Ok(served)
}

fn line(name: &str, what: impl fmt::Display) -> String {
    format!("\n  {name:<12} {what}")
}
