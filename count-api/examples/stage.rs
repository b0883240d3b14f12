//! Tables for the scripts beside: an emulator with everything the API reads, several counters, and posts with likes. Prints where it
//! listens once they are there, and serves until it is ended.
//!
//! ```text
//! cargo run -p tally-count-api --example stage -- 8000 1000
//! ```

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt, stream};
use tally_adapters::dynamodb;
use tally_core::counter::{Feeder, Touch, Update};
use tally_core::definitions::{Definitions, Entry};
use tally_core::ids::{CounterId, Ordinal, PostId, Sequence, Shard};
use tally_core::ports::{ChangeStream, Counts, DeploymentConfig as _, StreamRegistry as _};
use tally_core::time::UnixMillis;
use tally_emulator::Emulator;
use tally_service::Host;
use tokio::net::TcpListener;

/// Posts planted at once.
const AT_ONCE: usize = 32;

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

/// Post `p<n>` has n likes; every stream shard is applied up to now.
async fn plant(connection: &dynamodb::Connection, posts: u64) -> anyhow::Result<()> {
    dynamodb::ensure_tables(connection).await?;
    let now = Host::new("stage").clock().now();
    let (changes, checkpoints) = (dynamodb::Streams::new(connection), dynamodb::Checkpoints::new(connection));
    let label = changes.info().await?.label;
    for shard in changes.shards(&label).await? {
        checkpoints.number(&label, &shard.id, shard.parent.as_ref(), now).await?;
    }
    checkpoints.config(None).await?;
    checkpoints.define(&Definitions::likes_alone(), &several()?).await?;
    let counts = dynamodb::Counts::new(connection);
    let planted = stream::iter(1..=posts).map(|n| {
        let counts = counts.clone();
        async move { anyhow::Ok(counts.apply(&CounterId::likes(PostId::new(&format!("p{n}"))?), &likes(n, now)).await?) }
    });
    planted.buffer_unordered(AT_ONCE).try_for_each(async |_| Ok(())).await
}

/// Counters of each kind, of posts and of hashtags.
fn several() -> anyhow::Result<Definitions> {
    let entry = |name: &str, kind: &str, subject: &str, [add, remove]: [&str; 2]| Entry {
        name: name.to_owned(),
        kind: kind.to_owned(),
        add: add.to_owned(),
        remove: Some(remove.to_owned()),
        subject: Some(subject.to_owned()),
        ..Entry::default()
    };
    Ok(Definitions::new(&[
        entry("retweets", "set", "post_id", ["retweet", "unretweet"]),
        entry("views", "sum", "post_id", ["view", "unview"]),
        entry("posts", "set", "hashtag", ["tag", "untag"]),
        entry("searches", "sum", "hashtag", ["search", "unsearch"]),
    ])?)
}

fn likes(n: u64, at: UnixMillis) -> Update {
    let shard = Shard::new(0).expect("every deployment has a first shard");
    let delta = i64::try_from(n).unwrap_or(i64::MAX);
    Update {
        shard: Ordinal(1),
        first: Sequence::from(1),
        last: Sequence::from(1),
        at,
        touched: vec![Touch { shard, delta, feeder: Feeder::Usual, window: None, doubt: false }],
        ancestors: Vec::new(),
        closed_through: None,
        prune: None,
        guard: None,
    }
}
