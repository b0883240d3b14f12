//! A Redis server of our own, and what it takes to put another in its place.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use tally_adapters::redis::{PartitionCache, Settings};
use tally_core::ids::CachePrefix;
use tally_testkit::{Redis, until};

/// How long a server may take to follow another.
const FOLLOW: Duration = Duration::from_secs(20);

/// Another server that has all of `primary`'s and follows it.
pub(crate) async fn replica(primary: &Redis) -> anyhow::Result<Redis> {
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &primary.address().port().to_string()]).await?;
    let follows =
        async || replica.ask("INFO replication").await.is_ok_and(|said| said.contains("master_link_status:up"));
    until("the replica to follow", FOLLOW, follows).await?;
    Ok(replica)
}

/// A replica follows no other server any more.
pub(crate) async fn detach(replica: &Redis) -> anyhow::Result<()> {
    let answer = replica.ask("REPLICAOF NO ONE").await?;
    ensure!(answer.starts_with("+OK"), "Redis answered {answer:?}");
    Ok(())
}

/// What the deployment of tables under `prefix` has cached there, by no proxy.
pub(crate) fn cache(server: &Redis, prefix: &str) -> anyhow::Result<PartitionCache> {
    let prefix = CachePrefix::of_tables(prefix);
    let settings = Settings { timeout: Duration::from_secs(2), prefix, ..Settings::at(vec![server.url()]) };
    Ok(PartitionCache::new(&settings)?)
}

/// The URL of a server at `address`.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("redis://{address}")
}
