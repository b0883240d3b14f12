//! Tests the cache of counters over a real Redis: servers that the tests start, alone and as
//! clusters of one and of three, and the cluster in `TALLY_TEST_REDIS_CLUSTER`. Some tests show what only a real one
//! does: expiry, a restart, a dead node, a replica that takes over, and values of other versions and types.

mod scripts;
mod server;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Commands;
use tally_adapters::redis::{PartitionCache, Settings};
use tally_core::cached::{Cache, TakeOver, Told};
use tally_core::ids::{CachePrefix, CounterId};
use tally_core::ports::Outcome;
use tally_testkit::{PATIENCE, eventually};
use tokio::time::Instant;

use crate::likes::post;
use crate::partitions::{at, contract, fill, got, own, take_over, value};

use server::{Server, three_nodes};

/// The environment variable with the URLs of nodes of a shared cluster, separated by commas.
const CLUSTER: &str = "TALLY_TEST_REDIS_CLUSTER";

/// Partitions with slots on every node.
const PARTITIONS: std::ops::Range<u32> = 100..130;

fn cache_over(nodes: &[Server]) -> PartitionCache {
    let nodes = nodes.iter().map(Server::url).collect();
    PartitionCache::new(&Settings { timeout: Duration::from_secs(2), ..Settings::at(nodes) }).unwrap()
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn one_server_keeps_the_contract() {
    let server = Server::start(false).await;
    contract(&PartitionCache::new(&server.settings()).unwrap(), 0).await;
}

#[tokio::test]
#[ignore = "needs the cluster that TALLY_TEST_REDIS_CLUSTER names; localstack/engines test runs it"]
async fn a_cluster_elsewhere_keeps_the_contract() {
    let nodes = std::env::var(CLUSTER).unwrap_or_else(|error| panic!("{CLUSTER}: {error}"));
    let settings = Settings::at(nodes.split(',').map(str::to_owned).collect());
    let prefix = CachePrefix::of_tables(&format!("{:016x}-", RandomState::new().hash_one(())));
    let settings = Settings { timeout: Duration::from_secs(2), prefix, ..settings };
    contract(&PartitionCache::new(&settings).unwrap(), 0).await;
}

/// Writes the next value and the standing after it, and takes the partition over if the cache lost something.
async fn goes_on(cache: &dyn Cache, partition: u32, hold: &mut TakeOver, post: &CounterId, place: u64) -> Outcome<()> {
    let values = [(post.clone(), value(place))];
    if cache.tell(partition, hold, &values, Some(&at(place))).await? == Told::Lost {
        *hold = cache.take_over(partition, &own(), &at(place)).await?.expect("no later place was stated");
    }
    Ok(())
}

/// Repeats [`goes_on`] until the servers answer.
async fn goes_on_at_last(cache: &dyn Cache, partition: u32, hold: &mut TakeOver, post: &CounterId, place: u64) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(fault) = goes_on(cache, partition, hold, post, place).await {
        assert!(fault.is_retryable() && Instant::now() < deadline, "no node takes it: {fault}");
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn three_nodes_keep_the_contract_and_a_dead_one_affects_only_its_own_partitions() {
    let mut nodes = three_nodes(false).await;
    let (cache, post) = (cache_over(&nodes), post("p"));
    contract(&cache, 0).await;
    let mut holds = BTreeMap::new();
    for partition in PARTITIONS {
        holds.insert(partition, take_over(&cache, partition, 1).await);
        fill(&cache, partition, &post, value(1)).await;
    }
    nodes[1].kill();
    let mut away = Vec::new();
    for (partition, hold) in &mut holds {
        match goes_on(&cache, *partition, hold, &post, 2).await {
            Ok(()) => assert_eq!(got(&cache, *partition, &post).await, (Some(at(2)), Some(value(2)))),
            Err(fault) if fault.is_retryable() => away.push(*partition),
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!((1..holds.len()).contains(&away.len()), "{} are away", away.len());
    nodes[1].restart().await;
    for (partition, hold) in &mut holds {
        goes_on_at_last(&cache, *partition, hold, &post, 3).await;
        let expected = (!away.contains(partition)).then(|| value(3));
        assert_eq!(got(&cache, *partition, &post).await, (Some(at(3)), expected));
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_server_that_lost_its_scripts_gets_them_again() {
    let server = Server::start(false).await;
    let (cache, post) = (PartitionCache::new(&server.settings()).unwrap(), post("p"));
    let flush = || redis::cmd("SCRIPT").arg("FLUSH").query::<()>(&mut server.raw()).unwrap();
    let mut hold = take_over(&cache, 7, 1).await;
    flush();
    fill(&cache, 7, &post, value(1)).await;
    flush();
    let values = [(post.clone(), value(2))];
    assert_eq!(cache.tell(7, &mut hold, &values, Some(&at(2))).await, Ok(Told::Written(1)));
    flush();
    take_over(&cache, 7, 3).await;
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_server_that_was_unavailable_is_used_again() {
    for cluster in [false, true] {
        let mut server = Server::start(cluster).await;
        let (cache, post) = (PartitionCache::new(&server.settings()).unwrap(), post("p"));
        let mut hold = take_over(&cache, 7, 1).await;
        server.kill();
        let asked = Instant::now();
        assert!(goes_on(&cache, 7, &mut hold, &post, 2).await.is_err_and(|fault| fault.is_retryable()));
        assert!(asked.elapsed() < Duration::from_secs(6), "it took {:?} to fail", asked.elapsed());
        server.restart().await;
        goes_on_at_last(&cache, 7, &mut hold, &post, 3).await;
        fill(&cache, 7, &post, value(3)).await;
        assert_eq!(got(&cache, 7, &post).await, (Some(at(3)), Some(value(3))), "the server keeps nothing");
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_login_that_was_refused_is_tried_again() {
    let password = (["CONFIG", "SET", "requirepass", "other"], ["CONFIG", "SET", "requirepass", "own"]);
    let database = (["ACL", "SETUSER", "default", "-select"], ["ACL", "SETUSER", "default", "+select"]);
    for (cluster, (refuse, admit)) in [(false, password), (true, password), (false, database)] {
        let server = Server::start(cluster).await;
        let mut operator = server.raw();
        let mut set = |words: [&str; 4]| redis::cmd(words[0]).arg(&words[1..]).query::<()>(&mut operator).unwrap();
        let url = match refuse[0] {
            "ACL" => format!("{}/1", server.url()),
            _ => server.url().replace("://", "://:own@"),
        };
        let cache = PartitionCache::new(&Settings { nodes: vec![url.into()], ..server.settings() }).unwrap();
        set(refuse);
        for _ in 0..2 {
            assert!(cache.take_over(7, &own(), &at(1)).await.is_err_and(|fault| fault.is_retryable()));
        }
        set(admit);
        eventually("the server is used", async || cache.take_over(7, &own(), &at(1)).await.is_ok()).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the writers run side by side, and the test waits for each")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_node_that_dies_under_load_stops_writers_only_until_its_replica_takes_over() {
    let nodes = three_nodes(true).await;
    let cache = PartitionCache::new(&Settings::at(nodes.iter().map(Server::url).collect())).unwrap();
    let (killed, told) = tokio::sync::watch::channel(false);
    let written = Arc::new(AtomicU64::new(0));
    let mut writers = Vec::new();
    for partition in PARTITIONS {
        let (cache, told, written, post) = (cache.clone(), told.clone(), Arc::clone(&written), post("p"));
        let mut hold = take_over(&cache, partition, 1).await;
        writers.push(tokio::spawn(async move {
            let mut place = 2;
            // Writes until the death of the node is noticed.
            while goes_on(&cache, partition, &mut hold, &post, place).await.is_ok() && !*told.borrow() {
                place += 1;
                written.fetch_add(1, Ordering::Relaxed);
            }
            goes_on_at_last(&cache, partition, &mut hold, &post, place + 1).await;
        }));
    }
    eventually("many updates were written", async || written.load(Ordering::Relaxed) > 100).await;
    nodes[1].kill();
    killed.send_replace(true);
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn an_invalid_address_is_refused_without_repeating_it() {
    let error = PartitionCache::new(&Settings::at(vec!["http://:canary@host".to_owned()])).err().unwrap();
    assert!(!error.to_string().contains("canary"), "{error}");
    assert!(!format!("{:?}", Settings::at(vec!["redis://:canary@host".to_owned()])).contains("canary"));
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn keys_expire_in_time() {
    let server = Server::start(false).await;
    let prefix = CachePrefix::of_tables("a-");
    let settings = Settings { ttl: Duration::from_secs(100), prefix, ..server.settings() };
    let (cache, filled, filling) = (PartitionCache::new(&settings).unwrap(), post("filled"), post("filling"));
    let left = |key: &str| server.raw().pttl::<_, i64>(key).unwrap();
    let mut hold = take_over(&cache, 7, 1).await;
    fill(&cache, 7, &filled, value(1)).await;
    cache.begin_fill(7, &filling).await.unwrap().unwrap();
    assert!((1..=5_000).contains(&left("a-/{7}likes:filling")));
    for place in 1..3 {
        assert!((70_000..=100_000).contains(&left("a-/{7}likes:filled")));
        assert!((95_000..=100_000).contains(&left("a-/{7}")));
        let values = [(filled.clone(), value(place)), (filling.clone(), value(place))];
        cache.tell(7, &mut hold, &values, Some(&at(place))).await.unwrap();
        assert!((70_000..=100_000).contains(&left("a-/{7}likes:filling")));
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_value_of_an_unknown_version_or_of_another_type_counts_as_missing() {
    let server = Server::start(false).await;
    let (cache, post) = (PartitionCache::new(&server.settings()).unwrap(), post("p"));
    let unknown = ["", "1:7:3:1:99", "2:ab:7:1:-:-:", "4:ab:7:own:1:-:-:", "3:ab", "3:xyz:0:own:9:-:-:"];
    for text in unknown.into_iter().map(Some).chain([None]) {
        let put = |key: &str| {
            let () = server.raw().del(key).unwrap();
            let put = text.map_or_else(|| redis::Cmd::hset(key, "x", "y"), |text| redis::Cmd::set(key, text));
            put.exec(&mut server.raw()).unwrap();
        };
        put("{7}");
        assert_eq!(got(&cache, 7, &post).await, (None, None), "{text:?}");
        let mut hold = take_over(&cache, 7, 1).await;
        put("{7}likes:p");
        assert_eq!(cache.tell(7, &mut hold, &[(post.clone(), value(2))], None).await, Ok(Told::Written(0)), "{text:?}");
        assert_eq!(got(&cache, 7, &post).await, (Some(at(1)), None), "{text:?}");
        fill(&cache, 7, &post, value(1)).await;
    }
}
