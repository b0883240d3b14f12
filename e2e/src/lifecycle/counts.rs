//! The table of counts is lost under load: no process is started again, `tally adopt tables` goes on with the new table, and a
//! recount makes every count exact again.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount};
use tally_core::time::UnixMillis;
use tally_testkit::until;
use tokio::time::Instant;

use super::restore::none_is_exact;
use super::{Story, by_hand};
use crate::attack::service::Service;
use crate::attack::stage::{Setting, Stage};
use crate::crowd;

/// Rows of one request, and rows that may be put before the last of them is counted.
const BATCH: u8 = 25;
const AHEAD: u64 = 20_000;

/// Who likes a post, among so many users.
const USERS: u64 = 1_000;

/// Since when every row that is put by hand is there.
const SINCE: UnixMillis = UnixMillis(5);

/// How long processes may take to notice that a table is gone: they look each second, and processors may be busy.
const NOTICED: Duration = Duration::from_secs(10);

/// How long a recount of everything may take.
const RECOUNTED: Duration = Duration::from_secs(7_200);

/// How long the API may take to say exact again once the recount has ended.
const HONEST: Duration = Duration::from_secs(120);

/// Loses the counts of `posts` posts and of those that the load is about; the report.
///
/// # Errors
/// Something is called exact that is not, a process ends, or something differs in the end.
pub async fn lose_counts(program: &Path, broker: Option<SocketAddr>, seed: u64, posts: u64) -> anyhow::Result<String> {
    let stage = Stage::set(program, broker, seed, Setting::of(2)).await?;
    let mut story = Story::default();
    let lived = relive(&stage, &mut story, posts).await;
    lived.with_context(|| stage.fleet.tails(&story.0.join("\n")))?;
    let judgement = stage.judge().await?;
    Ok(story.ended(&format!("lose-counts --posts {posts}: seed {seed}"), &judgement))
}

async fn relive(stage: &Stage, story: &mut Story, posts: u64) -> anyhow::Result<()> {
    let began = Instant::now();
    put_rows(stage, posts).await?;
    let counters = stage.engines.emulator.stats().tables["like_counts"].items;
    story.tell(format!("{counters} items of like_counts after {}", spent(began)));

    let lost = Instant::now();
    lose(stage).await?;
    let noticed = until("no count to be called exact", NOTICED, async || none_is_exact(stage).await.is_ok()).await?;
    story.tell(format!("like_counts deleted and created anew; nothing is exact {:.1} s later", noticed.as_secs_f64()));
    let operator = stage.fleet.launcher.operator();
    let done = operator.change(&["adopt", "tables"]).await?;
    story.tell(done.out.lines().last().unwrap_or_default().to_owned());
    ensure!(stage.engines.open_losses().await? > 0, "no loss is open, and counts would be called exact");
    none_is_exact(stage).await?;

    let recounted = Instant::now();
    let recount = stage.fleet.launcher.start(Service::Recount, &[])?;
    let closed = async || stage.engines.open_losses().await.is_ok_and(|losses| losses == 0) || !recount.is_running();
    until("the loss to be closed", RECOUNTED, closed).await?;
    let before = stage.honesty.count().exact;
    until("the api to say exact again", HONEST, async || stage.honesty.count().exact > before).await?;
    story.tell(format!("exact again {} after the loss, {} after the recount began", spent(lost), spent(recounted)));
    if let Some(memory) = recount.peak_memory() {
        story.tell(format!("the recount has {} MiB of memory at most", memory >> 20));
    }
    let code = recount.exit(RECOUNTED).await?;
    ensure!(code == Some(0), "the recount ended with {code:?}\n{}", recount.tail());
    story.tell(format!("the recount has looked at everything once more after {}", spent(recounted)));
    stage.all_well()
}

/// Puts a row of each post by hand, as fast as they are counted.
async fn put_rows(stage: &Stage, posts: u64) -> anyhow::Result<()> {
    for first in (0..posts).step_by(usize::from(BATCH)) {
        let end = posts.min(first + u64::from(BATCH));
        let rows: Vec<Value> = (first..end).map(|nth| row(stage, nth)).collect::<Result<_, _>>()?;
        by_hand(&stage.engines, "BatchWriteItem", json!({"RequestItems": {"likes": rows}})).await?;
        if end.is_multiple_of(AHEAD) {
            stage.caught_up(Service::Streamer).await?;
        }
    }
    stage.caught_up(Service::Streamer).await?;
    Ok(())
}

fn row(stage: &Stage, nth: u64) -> anyhow::Result<Value> {
    let (post, user) = (PostId::new(&format!("b-{nth}")).context("an id")?, crowd::user(nth % USERS));
    let counter = CounterId::likes(post);
    let pk = RowKey::of(&counter, user.as_str(), ShardCount::DEFAULT).to_string();
    let (id, post) = (user.as_str(), counter.post.to_string());
    let item = json!({
        "pk": {"S": pk}, "user_id": {"S": id}, "post_id": {"S": post}, "liked_at": {"N": SINCE.0.to_string()},
    });
    stage.ledger.look().put(counter, &user, SINCE);
    Ok(json!({"PutRequest": {"Item": item}}))
}

/// Deletes the table of counts and creates another one.
async fn lose(stage: &Stage) -> anyhow::Result<()> {
    by_hand(&stage.engines, "DeleteTable", json!({"TableName": "like_counts"})).await?;
    let names: Value = json!([{"AttributeName": "post_id", "AttributeType": "S"}]);
    let keys: Value = json!([{"AttributeName": "post_id", "KeyType": "HASH"}]);
    let table = json!({
        "TableName": "like_counts", "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": names, "KeySchema": keys,
    });
    by_hand(&stage.engines, "CreateTable", table).await
}

fn spent(since: Instant) -> String {
    format!("{:.0} s", since.elapsed().as_secs_f64())
}
