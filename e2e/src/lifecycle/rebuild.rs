//! The counts are lost, and `tally rebuild counts` writes them anew from the rows: how many a second, with how much memory, and
//! whether each is what its rows weigh.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount};
use tally_core::ports::{Counts as _, Segment};
use tally_service::Host;
use tokio::time::Instant;

use super::{Story, by_hand};
use crate::attack::engines::{Engines, Roles};
use crate::attack::fleet::Launcher;
use crate::attack::ledger::definitions;
use crate::attack::service::Service;
use crate::crowd;

/// Rows of one request.
const BATCH: usize = 25;
/// The most likes of a post.
const MOST: u32 = 7;

/// Rebuilds the counts of `posts` posts; the report.
///
/// # Errors
/// A count is not what its rows weigh.
pub async fn rebuild(program: &Path, posts: u32) -> anyhow::Result<String> {
    let host = Host::new("rebuild");
    let engines = Engines::start(&host, None, Roles::Ignored, &definitions()).await?;
    let launcher = Launcher::new(program.to_owned(), &engines)?;
    let mut story = Story::default();
    // Nothing reads the stream of what is put by hand.
    engines.switch_stream(false).await?;
    let rows = put_rows(&engines, posts).await?;
    story.tell(format!("{rows} rows of {posts} posts, and no count"));
    engines.switch_stream(true).await?;
    // A consumer creates the fences.
    let consumer = launcher.start(Service::Consumer, &[])?;
    consumer.ready().await?;
    let fenced = async || engines.fences().await.len() == 12;
    crate::attack::wait::until("every partition to have a fence", Duration::from_secs(300), fenced).await?;
    consumer.stop().await?;
    let operator = launcher.operator();
    operator.change(&["pause", "consumer"]).await?;
    for is_on in [false, true] {
        engines.switch_stream(is_on).await?;
    }
    let began = Instant::now();
    let (done, memory) = operator.watched(&["rebuild", "counts", "--yes", "--why", "a campaign"]).await?;
    let took = began.elapsed();
    ensure!(done.code == Some(0), "{done:?}");
    story.tell(done.out.lines().last().unwrap_or_default().to_owned());
    let rate = rows as f64 / took.saturating_sub(HOLD).as_secs_f64();
    let memory = memory.map_or("not known".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    story.tell(format!("{:.0} s, {rate:.0} rows a second, {memory} of memory", took.as_secs_f64()));
    let compared = compare(&engines, posts).await?;
    operator.change(&["resume", "consumer"]).await?;
    let lines: Vec<String> = story.0.iter().map(|line| format!("  {line}\n")).collect();
    Ok(format!(
        "rebuild --posts {posts}\n{}  {compared} counters are what their rows weigh\n0 differences\n",
        lines.concat()
    ))
}

/// What a rebuild waits until every process has read of the gap.
const HOLD: Duration = Duration::from_secs(8);

/// How many likes a post has.
fn likes(nth: u32) -> u32 {
    // Most have few.
    match nth % 100 {
        0..70 => 1 + nth % 2,
        70..98 => 3 + nth % 3,
        _ => MOST,
    }
}

fn post(nth: u32) -> CounterId {
    CounterId::likes(PostId::new(&format!("p-{nth}")).expect("a letter and digits are an id"))
}

async fn put_rows(engines: &Engines, posts: u32) -> anyhow::Result<usize> {
    let (mut batch, mut rows) = (Vec::with_capacity(BATCH), 0);
    for nth in 0..posts {
        let counter = post(nth);
        for like in 0..likes(nth) {
            let user = crowd::user(u64::from(nth) * u64::from(MOST) + u64::from(like));
            let pk = RowKey::of(&counter, user.as_str(), ShardCount::DEFAULT).to_string();
            batch.push(json!({"PutRequest": {"Item": {
                "pk": {"S": pk}, "user_id": {"S": user.as_str()}, "post_id": {"S": counter.post.to_string()}, "liked_at": {"N": "5"},
            }}}));
            rows += 1;
            if batch.len() == BATCH {
                flush(engines, &mut batch).await?;
            }
        }
    }
    flush(engines, &mut batch).await?;
    Ok(rows)
}

async fn flush(engines: &Engines, batch: &mut Vec<Value>) -> anyhow::Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    let rows = std::mem::take(batch);
    by_hand(engines, "BatchWriteItem", json!({"RequestItems": {"likes": rows}})).await
}

/// Holds each counter against what was put; how many there are.
async fn compare(engines: &Engines, posts: u32) -> anyhow::Result<u32> {
    let (mut counted, mut after) = (0, None);
    let ports = engines.ports();
    loop {
        let page = ports.counts.scan(Segment { index: 0, of: 1 }, after.as_ref()).await?;
        for (id, counter) in page.items {
            let counter = counter.with_context(|| format!("{id} cannot be read"))?;
            let nth: u32 = id.post.strip_prefix("p-").context("a post of another name")?.parse()?;
            let sum = counter.sum().ok();
            ensure!(
                nth < posts && counter.likes == i64::from(likes(nth)),
                "{id} is {}, and has {}",
                counter.likes,
                likes(nth)
            );
            ensure!(sum == Some(counter.likes), "{id} is {}, and its shards come to {sum:?}", counter.likes);
            counted += 1;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ensure!(counted == posts, "{counted} counters of {posts} posts");
    Ok(counted)
}
