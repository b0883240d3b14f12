//! Serves tables for the scripts beside it: an emulator with everything the API reads, several counters, and posts with
//! likes. Prints its address once they are there, and serves until it is stopped.
//!
//! ```text
//! cargo run -p tally-count-api --example stage -- 8000 1000
//! ```

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt, stream};
use tally_adapters::dynamodb;
use tally_adapters::dynamodb::changes::{Changes, Config};
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::{Counters, Update};
use tally_core::cached::StandingAt;
use tally_core::changes::{DeploymentId, Place, Standing};
use tally_core::definitions::{Definitions, Entry};
use tally_core::fold::{Counter, Stated};
use tally_core::ids::{CounterId, PostId, Shard};
use tally_core::register::{Kept, Topic};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition, TopicId};
use tally_emulator::Emulator;
use tally_service::Host;
use tokio::net::TcpListener;

/// Requests at once that plant posts.
const AT_ONCE: usize = 8;

/// How many partitions the log of changes has.
const PARTITIONS: u32 = 16;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args.next().context("which port?")?.parse()?;
    let posts: u64 = args.next().context("how many posts?")?.parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let emulator = Emulator::new(tally_emulator::Config::default());
    let settings = dynamodb::Settings { endpoint: Some(endpoint.clone()), ..dynamodb::Settings::local("") };
    let set = async {
        plant(&dynamodb::Connection::open(&settings).await, posts).await?;
        writeln!(std::io::stderr(), "{posts} posts at {endpoint}")?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        served = emulator.serve(listener, std::future::pending()) => served?,
        set = set => set?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Post `p<n>` has n likes; all events up to now are counted.
async fn plant(connection: &dynamodb::Connection, posts: u64) -> anyhow::Result<()> {
    dynamodb::ensure_tables(connection).await?;
    let now = Host::new("stage").clock().now();
    let checkpoints = dynamodb::Checkpoints::new(connection);
    checkpoints.config(None).await?;
    checkpoints.define(&Definitions::likes_alone(), &several()?).await?;
    let (deployment, topic) = (DeploymentId("stage".into()), TopicId("stage".into()));
    let changes = Changes::new(connection);
    changes.begin_log(&Config { deployment, partitions: PARTITIONS, topic, generation: 0 }).await?;
    let counters = Counters::new(connection);
    counters.put_reserved().await?;
    claim(connection).await?;
    let posts: Vec<Update> = (1..=posts).map(|n| likes(n, now)).collect::<anyhow::Result<_>>()?;
    let planted = stream::iter(posts.chunks(Counters::UPDATES)).map(|updates| counters.write(updates));
    planted.buffer_unordered(AT_ONCE).try_for_each(async |_| Ok(())).await?;
    let standing = Standing { as_of: Some(now), ..Standing::default() };
    let standing = StandingAt { at: Place::from_stored(1), standing };
    let stated = Stated { standing, revision: 1, ..Stated::default() };
    for partition in 0..PARTITIONS {
        let stands = changes.state(partition, &stated).await?;
        anyhow::ensure!(stands.is_ok(), "the tables are not new: something is stated of partition {partition}");
    }
    Ok(())
}

/// Stores that everything that Kafka has ever acknowledged is a row.
async fn claim(connection: &dynamodb::Connection) -> anyhow::Result<()> {
    let claims = Claims::new(connection, Host::new("stage").clock());
    let (first, partition) = (Offset(0), Partition { topic: "likes".into(), index: 0 });
    let topic = Topic::first(TopicId("stage".into()), vec![first]);
    claims.begin_topic("likes", &topic).await?;
    let (claim, _) = claims.raise(&partition).await?;
    let kept = Kept { safe_at: Some(UnixMillis::MAX), at: UnixMillis(1), ..Kept::first(&topic, first) };
    anyhow::ensure!(claims.keep(&partition, claim.n, &kept).await?.is_some(), "the partition was claimed by another");
    Ok(())
}

/// Defines counters of each kind, of posts and of hashtags.
fn several() -> anyhow::Result<Definitions> {
    let of_hashtag = |entry| Entry { subject: Some("hashtag".to_owned()), ..entry };
    Ok(Definitions::new(&[
        Entry::set("retweets", "retweet", Some("unretweet")),
        Entry::sum("views", "view", Some("unview")),
        of_hashtag(Entry::set("posts", "tag", Some("untag"))),
        of_hashtag(Entry::sum("searches", "search", Some("unsearch"))),
    ])?)
}

fn likes(n: u64, now: UnixMillis) -> anyhow::Result<Update> {
    let shard = Shard::new(0).expect("every deployment has a first shard");
    let likes = i64::try_from(n)?;
    let parts = [(shard, likes)].into();
    let after = Counter { likes, parts, version: Place::from_stored(1), updated_at: now, ..Counter::default() };
    Ok(Update { counter: CounterId::likes(PostId::new(&format!("p{n}"))?), before: None, after })
}
