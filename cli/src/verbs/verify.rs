//! `tally verify`: every count held against its rows, without a write. An audit says the same and corrects; this is for a moment
//! at which nothing may be written, and for a second opinion.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, CounterKind, RowKey};
use tally_core::ports::{Counts as _, Outcome, Rows as _};
use tally_service::parse_duration;

use crate::desk::{Desk, Where};
use crate::said::{Answer, Table};
use crate::verbs::weighed::{self, WHOLE, Weighed};

/// Counters of one read.
const BATCH: usize = 100;
/// Reads under way at once.
const AT_ONCE: usize = 16;
/// Differences that are listed; the others are counted.
const LISTED: usize = 20;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// How often what differs is looked at again before it is called wrong
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    looks: u32,

    /// The wait before each of these looks: longer than a count needs to follow its rows
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "SPAN")]
    pause: Duration,

    #[command(flatten)]
    of: Where,
}

/// A count that is not what its rows weigh.
#[derive(Debug, Serialize)]
struct Difference {
    post: String,
    counter: String,
    /// Absent where the counter's total is not the sum over its shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u16>,
    /// What the rows weigh, or the shards come to; absent where a row cannot be read.
    rows: Option<i128>,
    /// What the count says; absent where it cannot be read.
    count: Option<i64>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verified {
    rows: u64,
    row_keys: u64,
    counters: u64,
    /// Row keys whose count moved during each look: nothing is said of them.
    moving: u64,
    wrong: u64,
    /// The first of them.
    differences: Vec<Difference>,
}

impl Answer for Verified {
    fn table(&self) -> String {
        let Self { rows, row_keys, counters, moving, wrong, differences } = self;
        let mut text = format!("{counters} counters, {rows} rows of {row_keys} row keys: {wrong} differences\n");
        if *moving > 0 {
            let _ = writeln!(text, "{moving} row keys never stood still: nothing is said of them");
        }
        if differences.is_empty() {
            return text;
        }
        let mut table = Table::headed(["post", "counter", "shard", "rows", "count"]);
        let said = |number: Option<i128>| number.map_or("cannot be read".to_owned(), |number| number.to_string());
        for Difference { post, counter, shard, rows, count } in differences {
            let shard = shard.map_or("total".to_owned(), |shard| shard.to_string());
            table.row([post, counter, &shard, &said(*rows), &said(count.map(i128::from))]);
        }
        text + &table.to_string()
    }

    fn found(&self) -> bool {
        self.wrong > 0
    }
}

/// What may be wrong: the count of a row key, or a counter's total.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doubted {
    Key(RowKey),
    Total(CounterId),
}

/// What a look at it finds.
enum Look {
    Right,
    /// The count changed during the look.
    Moves,
    Wrong(Difference),
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Verified> {
        let Self { looks, pause, of } = self;
        let desk = Desk::open(of).await?;
        let mut verified = Verified::default();
        let mut doubted = counts_of_rows(&desk, &mut verified).await?;
        doubted.extend(rows_of_counts(&desk, &mut verified).await?);
        doubted.sort_unstable();
        doubted.dedup();
        for nth in 1..=looks {
            if doubted.is_empty() {
                break;
            }
            desk.clock.sleep(pause).await;
            let looked = doubted.into_iter().map(|doubted| look(&desk, doubted));
            let looked: Vec<(Doubted, Look)> = stream::iter(looked).buffered(AT_ONCE).try_collect().await?;
            doubted = Vec::new();
            for (what, look) in looked {
                match look {
                    Look::Right => {}
                    _ if nth < looks => doubted.push(what),
                    Look::Moves => verified.moving += 1,
                    Look::Wrong(difference) => {
                        verified.wrong += 1;
                        if verified.differences.len() < LISTED {
                            verified.differences.push(difference);
                        }
                    }
                }
            }
        }
        Ok(verified)
    }
}

/// Holds each row key's rows against its count; those that differ.
async fn counts_of_rows(desk: &Desk, verified: &mut Verified) -> anyhow::Result<Vec<Doubted>> {
    let mut doubted = Vec::new();
    let rows = weighed::by_key(&desk.rows, async |whole| {
        verified.row_keys += whole.len() as u64;
        let some = whole.chunks(BATCH).map(|some| differing(desk, some));
        let differing: Vec<Vec<RowKey>> = stream::iter(some).buffered(AT_ONCE).try_collect().await?;
        doubted.extend(differing.into_iter().flatten().map(Doubted::Key));
        Ok(())
    });
    verified.rows = rows.await?;
    Ok(doubted)
}

async fn differing(desk: &Desk, weighed: &[Weighed]) -> anyhow::Result<Vec<RowKey>> {
    let mut ids: Vec<CounterId> = weighed.iter().map(|weighed| weighed.key.counter.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    let found = desk.counts.counters(&ids).await.context("cannot read counters")?;
    let counters: BTreeMap<CounterId, Outcome<Option<Counter>>> = ids.into_iter().zip(found).collect();
    let is_right = |weighed: &&Weighed| match &counters[&weighed.key.counter] {
        Ok(counter) => !weighed.doubt && i128::from(count_of(counter.as_ref(), &weighed.key)) == weighed.weight,
        Err(_) => false,
    };
    Ok(weighed.iter().filter(|weighed| !is_right(weighed)).map(|weighed| weighed.key.clone()).collect())
}

/// Looks for counts of row keys that have no row, and for totals that are not what their shards come to.
async fn rows_of_counts(desk: &Desk, verified: &mut Verified) -> anyhow::Result<Vec<Doubted>> {
    let (mut doubted, mut after) = (Vec::new(), None);
    loop {
        let page = desk.counts.scan(WHOLE, after.as_ref()).await.context("cannot read counters")?;
        verified.counters += page.items.len() as u64;
        let mut keys = Vec::new();
        for (id, counter) in page.items {
            let Ok(counter) = counter else {
                doubted.push(Doubted::Total(id));
                continue;
            };
            if counter.sum() != Ok(counter.likes) {
                doubted.push(Doubted::Total(id.clone()));
            }
            let counted = counter.shards.iter().filter(|(_, tally)| tally.rows != 0);
            keys.extend(counted.map(|(shard, _)| RowKey { counter: id.clone(), shard: *shard }));
        }
        let empty = keys.into_iter().map(|key| async move { anyhow::Ok((has_rows(desk, &key).await?, key)) });
        let empty: Vec<(bool, RowKey)> = stream::iter(empty).buffered(AT_ONCE).try_collect().await?;
        doubted.extend(empty.into_iter().filter(|(has, _)| !has).map(|(_, key)| Doubted::Key(key)));
        after = page.next;
        if after.is_none() {
            return Ok(doubted);
        }
    }
}

async fn has_rows(desk: &Desk, key: &RowKey) -> anyhow::Result<bool> {
    let found = match key.counter.name.kind() {
        CounterKind::Set => desk.rows.likes(key, None, Some(1)).await.map(|page| !page.items.is_empty()),
        // A cell for each partition, a few at most.
        CounterKind::Sum => desk.rows.weights(key, None).await.map(|page| !page.items.is_empty()),
    };
    found.context("cannot read rows")
}

async fn look(desk: &Desk, doubted: Doubted) -> anyhow::Result<(Doubted, Look)> {
    let looked = match &doubted {
        Doubted::Key(key) => look_at_key(desk, key).await?,
        Doubted::Total(id) => look_at_total(desk, id).await?,
    };
    Ok((doubted, looked))
}

/// The count, the rows, and the count again: where it stood still meanwhile, it is what the rows weigh or it is wrong.
async fn look_at_key(desk: &Desk, key: &RowKey) -> anyhow::Result<Look> {
    let before = counter(desk, &key.counter).await?;
    let rows = weigh(desk, key).await?;
    let after = counter(desk, &key.counter).await?;
    let counted = |found: &Outcome<Option<Counter>>| found.as_ref().ok().map(|found| count_of(found.as_ref(), key));
    let (before, count) = (counted(&before), counted(&after));
    let is_right = |count: Option<i64>| rows.is_some() && count.map(i128::from) == rows;
    if is_right(before) || is_right(count) {
        return Ok(Look::Right);
    }
    if before != count {
        return Ok(Look::Moves);
    }
    Ok(Look::Wrong(Difference {
        post: key.counter.post.to_string(),
        counter: key.counter.name.to_string(),
        shard: Some(key.shard.index()),
        rows,
        count,
    }))
}

async fn look_at_total(desk: &Desk, id: &CounterId) -> anyhow::Result<Look> {
    let found = counter(desk, id).await?;
    let (sum, count) = match &found {
        Ok(None) => return Ok(Look::Right),
        Ok(Some(counter)) if counter.sum() == Ok(counter.likes) => return Ok(Look::Right),
        Ok(Some(counter)) => (counter.shards.values().map(|tally| i128::from(tally.rows)).sum(), Some(counter.likes)),
        Err(_) => (0, None),
    };
    let rows = count.map(|_| sum);
    let (post, counter) = (id.post.to_string(), id.name.to_string());
    Ok(Look::Wrong(Difference { post, counter, shard: None, rows, count }))
}

/// What the rows of a row key weigh; `None` where one cannot be read.
async fn weigh(desk: &Desk, key: &RowKey) -> anyhow::Result<Option<i128>> {
    let (mut sum, mut after) = (Some(0), None);
    loop {
        let page = desk.rows.weights(key, after.as_ref()).await.context("cannot read rows")?;
        for (_, weight) in page.items {
            sum = sum.zip(weight).map(|(sum, weight)| sum + i128::from(weight.get()));
        }
        after = page.next;
        if after.is_none() {
            return Ok(sum);
        }
    }
}

/// The counter, or why it cannot be read: that is an answer, too.
async fn counter(desk: &Desk, id: &CounterId) -> anyhow::Result<Outcome<Option<Counter>>> {
    match desk.counts.counter(id).await {
        Err(fault @ Fault::Poison(_)) => Ok(Err(fault)),
        found => Ok(Ok(found.context("cannot read a counter")?)),
    }
}

fn count_of(counter: Option<&Counter>, key: &RowKey) -> i64 {
    counter.and_then(|counter| counter.shards.get(&key.shard)).map_or(0, |tally| tally.rows)
}
