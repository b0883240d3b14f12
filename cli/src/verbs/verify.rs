//! `tally verify`: compares every count with its rows and writes nothing. An audit finds the same and corrects it; this
//! is for a time at which nothing may be written, and for a second opinion.
//!
//! It reads all rows and then all counters, and notes what differs. Counts follow rows with a delay, so it *looks* at
//! each difference again, several times: what is still different, by the same numbers as in the look before, is wrong.
//!
//! While consumers are paused, no row changes. Then it first waits until every change from before is counted. What it
//! reads afterwards stands still, so the answer is certain.

mod erased;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use serde_json::Value;
use tally_adapters::dynamodb::{Consistency, Cursor};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, MemberKey, RowKey, Shard};
use tally_service::parse_duration;

use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, or, sum};
use crate::verbs::pause::{PauseId, pause_of};
use crate::verbs::post::seen::{Sources, counter};

/// How many counters are read in one call.
const BATCH: usize = 100;
/// How many reads are under way at once.
const AT_ONCE: usize = 16;
/// How many differences are listed; the others are only counted.
const LISTED: usize = 20;
/// How many differences are looked at again. The others are called wrong at once: so many have one cause.
const DOUBTED: usize = 100_000;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// How often what differs is looked at again before it is called wrong. While consumers are paused, also how often
    /// this looks first whether every change is counted
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    looks: u32,

    /// The wait between these looks: longer than a count needs to follow its rows. What differs by the same numbers
    /// before and after the last one is wrong
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "SPAN")]
    pause: Duration,

    /// Look instead for ids that were erased: a user, or a post, a tab and a user, each on a line. Exits with 1 where
    /// one is in the tables again, as a replay of old events may bring it back
    #[arg(long, value_name = "FILE")]
    erased: Option<PathBuf>,

    #[command(flatten)]
    of: Where,
}

#[derive(Debug, Default, Serialize)]
struct Verified {
    rows: u64,
    row_keys: u64,
    counters: u64,
    /// How many counts differed in every look, but at last by other numbers than before: they may be right or wrong.
    moving: u64,
    wrong: u64,
    /// The first of the wrong counts.
    differences: Vec<Difference>,
    /// How many losses are open: counts may be wrong, and an audit is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    losses: Option<NonZeroUsize>,
    claim: Claim,
    /// The counts that have differed so far, each with the numbers that the look before found, if there was one.
    #[serde(skip)]
    doubted: BTreeMap<What, Option<Numbers>>,
}

/// A count that is not the sum of its rows.
#[derive(Debug, Serialize)]
struct Difference {
    post: String,
    counter: String,
    /// Absent for the total.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u16>,
    rows: Option<Value>,
    count: Option<i64>,
}

/// How certain the answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Claim {
    /// No row changed, and all changes were counted before the tables were read: each count was right or is called
    /// wrong.
    Certain,
    /// No row changed, but not all changes were counted before: what is listed may be about to be counted, and a count
    /// may have been found right by chance.
    NotCounted,
    /// Rows may have been written meanwhile.
    #[default]
    RowsMoved,
}

impl Claim {
    fn said(self) -> &'static str {
        match self {
            Self::Certain => "certain: no row was written meanwhile, and every change had been counted",
            Self::NotCounted => {
                "not certain: consumers are paused, but not every change was counted before this read the tables. Run it \
                 again, or with more --looks: tally status says how far behind counts are"
            }
            Self::RowsMoved => {
                "not certain: rows may have been written meanwhile. Each listed difference is real; a count that moved may hide \
                 another. For a certain answer, pause consumers and wait until that command has ended (six minutes)"
            }
        }
    }
}

impl From<Verified> for Answer {
    fn from(verified: Verified) -> Self {
        let Verified { rows, row_keys, counters, moving, wrong, differences, losses, claim, .. } = &verified;
        let mut text = format!("{counters} counters, {rows} rows of {row_keys} row keys: {wrong} differences\n");
        if *moving > 0 {
            let _ = writeln!(text, "{moving} more differ and never stood still: nothing is said of them");
        }
        if let Some(losses) = losses {
            let _ = writeln!(text, "{losses} losses are open, which an audit closes: tally audit start");
        }
        let _ = writeln!(text, "{}", claim.said());
        let mut table = Table::headed(["post", "counter", "shard", "rows", "count"]);
        for Difference { post, counter, shard, rows, count } in differences {
            let rows = rows.as_ref().map(|rows| rows.as_str().map_or_else(|| rows.to_string(), str::to_owned));
            let [rows, count] = [rows, count.map(|count| count.to_string())].map(|number| or(number, "unknown"));
            table.row([post, counter, &or(*shard, "total"), &rows, &count]);
        }
        if !differences.is_empty() {
            text.push_str(&table.to_string());
        }
        if let others @ 1.. = wrong.saturating_sub(differences.len() as u64) {
            let _ = writeln!(text, "and {others} more");
        }
        Self::new(&verified, text).wrong_if(*wrong > 0)
    }
}

impl Difference {
    fn of((counter, shard): &What, Numbers { rows, count }: Numbers) -> Self {
        let (post, counter, shard) = (counter.post.to_string(), counter.name.to_string(), shard.map(Shard::index));
        Self { post, counter, shard, rows: rows.map(sum), count }
    }
}

/// A count that may be wrong: that of one of the counter's shards or, without a shard, its total.
type What = (CounterId, Option<Shard>);

/// The sum of the rows and the count, each absent where it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    rows: Option<i128>,
    count: Option<i64>,
}

impl Numbers {
    fn are_right(self) -> bool {
        self.rows.is_some() && self.count.map(i128::from) == self.rows
    }
}

impl Verified {
    /// Has a count looked at again. If so many differ already, it is called wrong at once.
    fn doubt(&mut self, what: What) {
        if self.doubted.len() < DOUBTED || self.doubted.contains_key(&what) {
            self.doubted.entry(what).or_default();
        } else {
            self.wrong += 1;
        }
    }
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { looks, pause, erased, of } = self;
        match erased {
            Some(file) => erased::look(&file, of).await,
            None => Ok(verify(&Desk::open(of).await?, (looks, pause)).await?.into()),
        }
    }
}

async fn verify(desk: &Desk, (looks, pause): (u32, Duration)) -> anyhow::Result<Verified> {
    let mut verified = Verified::default();
    let pauses = pauses(desk).await?;
    let is_counted = pauses.is_some() && await_counts(desk, (looks, pause)).await?;
    counts_of_rows(desk, &mut verified).await?;
    rows_of_counts(desk, &mut verified).await?;
    let mut found = std::mem::take(&mut verified.doubted);
    for nth in 0..=looks {
        if found.is_empty() {
            break;
        }
        if nth > 0 {
            desk.clock.sleep(pause).await;
        }
        let last = nth == looks;
        let looked = found.into_iter().map(|(what, before)| look(desk, what, before));
        let mut looked = stream::iter(looked).buffered(AT_ONCE);
        found = BTreeMap::new();
        while let Some((what, before, now)) = looked.try_next().await? {
            match now {
                now if now.are_right() => {}
                now if !last => _ = found.insert(what, Some(now)),
                now if before == Some(now) => {
                    verified.wrong += 1;
                    if verified.differences.len() < LISTED {
                        verified.differences.push(Difference::of(&what, now));
                    }
                }
                _ => verified.moving += 1,
            }
        }
    }
    let losses = desk.changes.losses().await.context("cannot read the losses")?;
    verified.losses = NonZeroUsize::new(losses.open().count());
    // A pause that ended and another one that began meanwhile are not one pause.
    let is_one_pause = pauses.is_some() && self::pauses(desk).await? == pauses;
    verified.claim = match (is_one_pause, is_counted) {
        (false, _) => Claim::RowsMoved,
        (true, false) => Claim::NotCounted,
        (true, true) => Claim::Certain,
    };
    Ok(verified)
}

/// A row key, and the sum of its rows' weights; `None` if one cannot be read. A row's *weight* is what it counts for: 1
/// for a member of a set, the amount of a sum's cell.
type Weighed = (RowKey, Option<i128>);

/// Reads all rows, compares the sum of each row key with its count, and doubts those that differ.
async fn counts_of_rows(desk: &Desk, verified: &mut Verified) -> anyhow::Result<()> {
    // The rows of a row key follow each other, on more than one page.
    let (mut open, mut pages, mut is_over) = (None::<Weighed>, desk.every_row(), false);
    while !is_over {
        let (rows, mut whole) = (pages.try_next().await?, Vec::new());
        is_over = rows.is_none();
        for row in rows.into_iter().flatten() {
            // An item that is no row counts for nothing, as in the stream.
            let (Ok(key), Some(_)) = (row.pk.parse::<RowKey>(), MemberKey::new(&row.sort)) else { continue };
            // A tombstone is not counted as a row.
            verified.rows += u64::from(row.gone.is_none());
            let weight = row.weight().map(|weight| i128::from(weight.get()));
            match &mut open {
                Some((open, sum)) if *open == key => *sum = sum.zip(weight).map(|(sum, weight)| sum + weight),
                _ => whole.extend(open.replace((key, weight))),
            }
        }
        whole.extend(open.take_if(|_| is_over));
        verified.row_keys += whole.len() as u64;
        let some = whole.chunks(BATCH).map(|some| differing(desk, some));
        let differing: Vec<Vec<RowKey>> = stream::iter(some).buffered(AT_ONCE).try_collect().await?;
        differing.into_iter().flatten().for_each(|key| verified.doubt((key.counter, Some(key.shard))));
    }
    Ok(())
}

async fn differing(desk: &Desk, weighed: &[Weighed]) -> anyhow::Result<Vec<RowKey>> {
    let mut ids: Vec<CounterId> = weighed.iter().map(|(key, _)| key.counter.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    let counters = desk.counters.read(&ids, Consistency::Strong).await.context("cannot read counters")?.counters;
    let is_right = |(key, weight): &&Weighed| match counters.get(&key.counter) {
        None => *weight == Some(0),
        Some(Ok(counter)) => *weight == Some(counter.part(key.shard).into()),
        Some(Err(_)) => false,
    };
    Ok(weighed.iter().filter(|weighed| !is_right(weighed)).map(|(key, _)| key.clone()).collect())
}

/// Reads all counters, and doubts counts of row keys without rows, and totals that are not the sum of their shards.
async fn rows_of_counts(desk: &Desk, verified: &mut Verified) -> anyhow::Result<()> {
    let mut pages = desk.every_counter();
    while let Some(counters) = pages.try_next().await? {
        verified.counters += counters.len() as u64;
        let mut keys = Vec::new();
        for (id, counter) in counters {
            if !counter.as_ref().is_ok_and(Counter::adds_up) {
                verified.doubt((id.clone(), None));
            }
            let Ok(counter) = counter else { continue };
            let counted = counter.parts.iter().filter(|(_, part)| **part != 0);
            keys.extend(counted.map(|(shard, _)| RowKey { counter: id.clone(), shard: *shard }));
        }
        let empty = keys.into_iter().map(|key| async move { anyhow::Ok((has_rows(desk, &key).await?, key)) });
        let empty: Vec<(bool, RowKey)> = stream::iter(empty).buffered(AT_ONCE).try_collect().await?;
        empty.into_iter().filter(|(has, _)| !has).for_each(|(_, key)| verified.doubt((key.counter, Some(key.shard))));
    }
    Ok(())
}

async fn has_rows(desk: &Desk, key: &RowKey) -> anyhow::Result<bool> {
    let rows = &desk.rows;
    let first = move |after: Option<Cursor>| async move { rows.likes(key, after.as_ref(), Some(1)).await };
    let mut sizes = match key.counter.name.kind() {
        CounterKind::Set => desk.calls.pages("read rows", first).map_ok(|rows| rows.len()).boxed(),
        // A sum has at most one row for each Kafka partition.
        CounterKind::Sum => desk.weights(key).map_ok(|rows| rows.len()).boxed(),
    };
    while let Some(size) = sizes.try_next().await? {
        if size > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the numbers of `what` again. Returns them after those of the look before.
async fn look(desk: &Desk, what: What, before: Option<Numbers>) -> anyhow::Result<(What, Option<Numbers>, Numbers)> {
    let (id, shard) = &what;
    let counter = counter(desk, id, Sources::default()).await?.counter.ok().map(Option::unwrap_or_default);
    let now = match *shard {
        Some(shard) => {
            let key = RowKey { counter: id.clone(), shard };
            Numbers { rows: weigh(desk, &key).await?, count: counter.map(|counter| counter.part(shard)) }
        }
        None => {
            // Of a counter that cannot be read no number is known, so its rows need not be read.
            let Some(counter) = counter else { return Ok((what, before, Numbers { rows: None, count: None })) };
            let mut rows = Some(0);
            for key in RowKey::all(id, desk.shards) {
                rows = rows.zip(weigh(desk, &key).await?).map(|(sum, rows)| sum + rows);
            }
            Numbers { rows, count: Some(counter.likes) }
        }
    };
    Ok((what, before, now))
}

/// Adds up the rows of a row key. Returns `None` if one cannot be read.
async fn weigh(desk: &Desk, key: &RowKey) -> anyhow::Result<Option<i128>> {
    let (mut sum, mut pages) = (Some(0), desk.weights(key));
    while let Some(rows) = pages.try_next().await? {
        for (_, weight) in rows {
            sum = sum.zip(weight).map(|(sum, weight)| sum + i128::from(weight.get()));
        }
    }
    Ok(sum)
}

/// Waits until every change that is in the table of rows now is counted. Returns `false` if it is not after all looks.
async fn await_counts(desk: &Desk, (looks, pause): (u32, Duration)) -> anyhow::Result<bool> {
    // The time of a standing is by the store's clock, and always some seconds behind it. This machine's clock may be
    // slow, so this takes the latest time that the store's clock may show.
    let now = desk.claims.time().latest;
    for nth in 0..=looks {
        if nth > 0 {
            desk.clock.sleep(pause).await;
        }
        let config = desk.changes.config().await.context("cannot read the configuration of the log")?;
        let Some(config) = config else { return Ok(false) };
        let standings = desk.changes.standings(config.partitions).await.context("cannot read the standings")?;
        let as_of = |partition| standings.get(&partition).and_then(|stored| stored.standing.as_of);
        if (0..config.partitions).all(|partition| as_of(partition) >= Some(now)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the pause of each topic, or `None` where consumers of one are not paused, or a request of theirs can still
/// take effect.
async fn pauses(desk: &Desk) -> anyhow::Result<Option<Vec<PauseId>>> {
    let usual = desk.usual_topic().await?;
    let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
    let others = defined.iter().filter_map(|definition| definition.topic.as_deref());
    let mut pauses = Vec::new();
    for topic in others.chain([&*usual]) {
        let Some(pause) = pause_of(desk, topic).await? else { return Ok(None) };
        pauses.push(pause);
    }
    Ok(Some(pauses))
}
