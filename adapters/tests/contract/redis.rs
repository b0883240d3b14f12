//! The cache over a real Redis, started here where it is installed, alone and as a cluster of one and of three, and over
//! the cluster that `TALLY_TEST_REDIS_CLUSTER` names; and what only the real one can show: expiry, a restart, a dead node,
//! a replica that takes its place, formats of other versions.

mod partitions;
mod server;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Commands;
use tally_adapters::redis::{Cache, Settings};
use tally_core::ids::{CachePrefix, CounterId, CounterKind, CounterName};
use tally_core::ports::{Cache as _, Cached};
use tally_core::served::Served;
use tokio::time::Instant;

use crate::cache::contract;
use crate::likes::post;

use server::{DEADLINE, Server, eventually, three_nodes};

/// The environment variable that names nodes of a cluster that others use, too: URLs, separated by commas.
const CLUSTER: &str = "TALLY_TEST_REDIS_CLUSTER";
fn served(version: u64) -> Served {
    Served { version, likes: 7, exact: true, ..Served::default() }
}

async fn fill(cache: &Cache, post: &CounterId, version: u64) {
    let token = cache.begin_fill(post).await.unwrap().unwrap();
    assert_eq!(cache.fill(post, &token, &served(version)).await, Ok(true));
}

/// A client that is patient with a busy machine.
fn cache_over(nodes: impl Iterator<Item = String>) -> Cache {
    Cache::new(&Settings { timeout: Duration::from_secs(2), ..Settings::at(nodes.collect()) }).unwrap()
}

async fn sixty_filled(cache: &Cache) -> Vec<CounterId> {
    let posts: Vec<CounterId> = (0..60).map(|n| post(&format!("p-{n}"))).collect();
    for post in &posts {
        fill(cache, post, 1).await;
    }
    posts
}

async fn held(cache: &Cache, post: &CounterId) -> Cached {
    cache.get(std::slice::from_ref(post)).await.unwrap().remove(0)
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn one_server_keeps_the_contract() {
    let server = Server::start(false);
    contract(&Cache::new(&server.settings()).unwrap(), "").await;
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_cluster_keeps_the_contract() {
    let server = Server::start(true);
    contract(&Cache::new(&server.settings()).unwrap(), "").await;
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn three_nodes_keep_the_contract_and_a_dead_one_takes_only_its_own_along() {
    let mut nodes = three_nodes(false);
    let cache = cache_over(nodes.iter().map(Server::url));
    contract(&cache, "").await;
    let posts = sixty_filled(&cache).await;
    nodes[1].kill();
    let mut lost = Vec::new();
    for post in &posts {
        match cache.get(std::slice::from_ref(post)).await {
            Ok(found) => assert_eq!(found, [Cached::Hit(served(1))]),
            Err(fault) if fault.is_retryable() => lost.push(post),
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!((1..60).contains(&lost.len()), "{} lost", lost.len());
    nodes[1].restart();
    let deadline = Instant::now() + DEADLINE;
    let found = loop {
        match cache.get(&posts).await {
            Ok(found) => break found,
            Err(fault) => assert!(Instant::now() < deadline, "not used again: {fault}"),
        }
    };
    let expected = |post| if lost.contains(&post) { Cached::Miss } else { Cached::Hit(served(1)) };
    assert_eq!(found, posts.iter().map(expected).collect::<Vec<_>>());
    fill(&cache, lost[0], 2).await;
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_replica_takes_a_dead_nodes_place_with_its_counts_and_is_written_to() {
    let mut nodes = three_nodes(true);
    let cache = cache_over(nodes.iter().map(Server::url));
    let posts = sixty_filled(&cache).await;
    let offset = |node: &Server, name: &str| {
        let info: redis::InfoDict = redis::cmd("INFO").arg("replication").query(&mut node.raw()).unwrap();
        info.get::<u64>(name).unwrap()
    };
    eventually("the replicas have everything", || {
        let mut pairs = nodes[..3].iter().zip(&nodes[3..]);
        pairs.all(|(master, replica)| offset(replica, "slave_repl_offset") == offset(master, "master_repl_offset"))
    });
    nodes[1].kill();
    let deadline = Instant::now() + DEADLINE;
    let found = loop {
        match cache.get(&posts).await {
            Ok(found) => break found,
            Err(fault) => assert!(fault.is_retryable() && Instant::now() < deadline, "no replica took over: {fault}"),
        }
    };
    assert_eq!(found, vec![Cached::Hit(served(1)); 60]);
    let newer: Vec<_> = posts.iter().map(|post| (post.clone(), served(2))).collect();
    // The client may not have learnt yet where all of the dead node's slots are now.
    while let Err(fault) = cache.update(&newer).await {
        assert!(fault.is_retryable() && Instant::now() < deadline, "no node takes updates: {fault}");
    }
    assert_eq!(cache.get(&posts).await, Ok(vec![Cached::Hit(served(2)); 60]));
    nodes[1].restart();
    eventually("the node that was dead is a replica", || {
        let role: String = redis::cmd("INFO").arg("replication").query(&mut nodes[1].raw()).unwrap();
        role.contains("role:slave") && role.contains("master_link_status:up")
    });
    assert_eq!(cache.get(&posts).await, Ok(vec![Cached::Hit(served(2)); 60]));
}

#[expect(clippy::disallowed_methods, reason = "the writers run side by side, and the test waits for each")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_node_that_dies_while_many_write_stops_nobody_for_longer_than_its_replica_takes() {
    let mut nodes = three_nodes(true);
    let cache = Cache::new(&Settings::at(nodes.iter().map(Server::url).collect())).unwrap();
    let posts = sixty_filled(&cache).await;
    let (killed, told) = tokio::sync::watch::channel(false);
    let written = Arc::new(AtomicU64::new(0));
    let writers = (0..4u64).map(|writer| {
        let (cache, posts, told, written) = (cache.clone(), posts.clone(), told.clone(), Arc::clone(&written));
        tokio::spawn(async move {
            let mut version = 2 + writer;
            // On until the node's death is felt.
            while cache.update(&newer(&posts, version)).await.is_ok() || !*told.borrow() {
                version += 4;
                written.fetch_add(1, Ordering::Relaxed);
            }
            let deadline = Instant::now() + DEADLINE;
            while let Err(fault) = cache.update(&newer(&posts, version)).await {
                assert!(fault.is_retryable() && Instant::now() < deadline, "no node takes updates: {fault}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    eventually("many updates were written", || written.load(Ordering::Relaxed) > 40);
    nodes[1].kill();
    killed.send_replace(true);
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_node_that_lost_its_scripts_is_taught_them_and_nothing_is_done_twice() {
    let nodes = three_nodes(false);
    let cache = cache_over(nodes.iter().map(Server::url));
    let posts = sixty_filled(&cache).await;
    assert_eq!(cache.update(&newer(&posts, 2)).await, Ok(60));
    let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut nodes[1].raw()).unwrap();
    assert_eq!(cache.update(&newer(&posts, 3)).await, Ok(60));
}

fn newer(posts: &[CounterId], version: u64) -> Vec<(CounterId, Served)> {
    posts.iter().map(|post| (post.clone(), served(version))).collect()
}

#[tokio::test]
#[ignore = "needs the cluster that TALLY_TEST_REDIS_CLUSTER names; localstack/engines-test runs it"]
async fn a_cluster_elsewhere_keeps_the_contract_over_all_its_slots() {
    let nodes = std::env::var(CLUSTER).unwrap_or_else(|error| panic!("{CLUSTER}: {error}"));
    let cache = cache_over(nodes.split(',').map(str::to_owned));
    let run = format!("{:016x}-", RandomState::new().hash_one(()));
    contract(&cache, &run).await;
    many_slots(&cache, &run).await;
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn many_posts_of_many_slots_are_answered_in_their_order() {
    for cluster in [false, true] {
        let server = Server::start(cluster);
        many_slots(&Cache::new(&server.settings()).unwrap(), "").await;
    }
}

async fn many_slots(cache: &Cache, run: &str) {
    let posts: Vec<CounterId> = (0..300).map(|n| post(&format!("{run}p-{n}{{tag-{}}}", n % 7))).collect();
    for (nth, post) in posts.iter().enumerate().filter(|(nth, _)| nth % 3 == 0) {
        fill(cache, post, nth as u64 + 1).await;
    }
    let newer: Vec<_> = posts.iter().map(|post| (post.clone(), served(250))).collect();
    assert_eq!(cache.update(&newer).await, Ok(83), "those there, and older than version 250");
    let found = cache.get(&posts).await.unwrap();
    for (nth, cached) in found.into_iter().enumerate() {
        let version = (nth % 3 == 0).then(|| (nth as u64 + 1).max(250));
        assert_eq!(cached, version.map_or(Cached::Miss, |version| Cached::Hit(served(version))), "{nth}");
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn versions_beyond_what_lua_counts_are_told_apart() {
    let server = Server::start(false);
    let (cache, post) = (Cache::new(&server.settings()).unwrap(), post("p"));
    let big = u64::MAX - 1;
    fill(&cache, &post, 9).await;
    for (version, standing) in [(10, 10), (9, 10), (big, big), (big - 1, big), (big + 1, big + 1), (big, big + 1)] {
        cache.update(&[(post.clone(), served(version))]).await.unwrap();
        assert_eq!(held(&cache, &post).await, Cached::Hit(served(standing)));
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_key_expires_within_its_time_and_so_does_the_right_to_fill_it() {
    let server = Server::start(false);
    let settings = Settings { ttl: Duration::from_secs(100), fill: Duration::from_millis(50), ..server.settings() };
    let (cache, value, right) = (Cache::new(&settings).unwrap(), post("value"), post("right"));
    fill(&cache, &value, 1).await;
    let left: i64 = server.raw().pttl("likes:value").unwrap();
    assert!((70_000..=100_000).contains(&left), "{left} ms");
    let late = cache.begin_fill(&right).await.unwrap().unwrap();
    let deadline = Instant::now() + DEADLINE;
    let token = loop {
        if let Some(token) = cache.begin_fill(&right).await.unwrap() {
            break token;
        }
        assert!(Instant::now() < deadline, "the right to fill never ends");
    };
    assert_eq!(cache.fill(&right, &late, &served(1)).await, Ok(false));
    let written = cache.fill(&right, &token, &served(2)).await.unwrap();
    assert_eq!(held(&cache, &right).await == Cached::Hit(served(2)), written);
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn what_is_evicted_is_missed_and_no_update_brings_it_back() {
    let server = Server::start(false);
    let cache = Cache::new(&server.settings()).unwrap();
    let memory: redis::InfoDict = redis::cmd("INFO").arg("memory").query(&mut server.raw()).unwrap();
    let most = memory.get::<u64>("used_memory").unwrap() + (256 << 10);
    for (name, value) in [("maxmemory", most.to_string()), ("maxmemory-policy", "allkeys-lru".to_owned())] {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query::<()>(&mut server.raw()).unwrap();
    }
    let posts: Vec<CounterId> = (0..4_000).map(|n| post(&format!("p-{n}"))).collect();
    for post in &posts {
        let token = cache.begin_fill(post).await.unwrap().unwrap();
        cache.fill(post, &token, &served(1)).await.unwrap();
    }
    let kept = |mut found: Vec<Cached>, version| {
        found.retain(|cached| *cached != Cached::Miss);
        assert!(found.iter().all(|cached| *cached == Cached::Hit(served(version))));
        found.len()
    };
    let before = kept(cache.get(&posts).await.unwrap(), 1);
    assert!((1..4_000).contains(&before), "{before} were kept");
    let newer: Vec<_> = posts.iter().map(|post| (post.clone(), served(2))).collect();
    assert!(cache.update(&newer).await.unwrap() <= before);
    assert!(kept(cache.get(&posts).await.unwrap(), 2) <= before);
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn deployments_with_other_table_prefixes_share_a_server_and_no_value() {
    let server = Server::start(false);
    let caches = ["", "a-", "b-"]
        .map(|tables| Cache::new(&Settings { prefix: CachePrefix::of_tables(tables), ..server.settings() }).unwrap());
    let views = CounterName::new("views", CounterKind::Sum).unwrap();
    let counters = [post("p"), CounterId { name: views, ..post("p") }];
    let mut version = 0;
    for cache in &caches {
        for counter in &counters {
            version += 1;
            fill(cache, counter, version).await;
        }
    }
    let mut version = 0;
    for cache in &caches {
        for counter in &counters {
            version += 1;
            assert_eq!(held(cache, counter).await, Cached::Hit(served(version)));
        }
    }
    let mut keys: Vec<String> = server.raw().keys("*").unwrap();
    keys.sort();
    assert_eq!(keys, ["+views:p", "a-/+views:p", "a-/likes:p", "b-/+views:p", "b-/likes:p", "likes:p"]);
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_count_of_another_format_is_neither_served_nor_replaced() {
    let server = Server::start(false);
    let (cache, post) = (Cache::new(&server.settings()).unwrap(), post("p"));
    let future = "2:9:whatever";
    server.raw().set::<_, _, ()>("likes:p", future).unwrap();
    assert_eq!(held(&cache, &post).await, Cached::Miss);
    assert_eq!(cache.update(&[(post.clone(), served(1000))]).await, Ok(0));
    assert_eq!(server.raw().get::<_, String>("likes:p").unwrap(), future);
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn ids_are_arguments_and_never_commands() {
    let server = Server::start(false);
    let cache = Cache::new(&server.settings()).unwrap();
    for id in ["a b", "\"'); redis.call('FLUSHALL') --", "x y $5 FLUSHALL", "{}", "{", "\u{2028}\u{1f44d}"] {
        let post = post(id);
        fill(&cache, &post, 3).await;
        assert_eq!(held(&cache, &post).await, Cached::Hit(served(3)), "{id:?}");
    }
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut server.raw()).unwrap(), 6);
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_server_that_was_gone_is_used_again_and_forgets_its_scripts_without_harm() {
    for cluster in [false, true] {
        let mut server = Server::start(cluster);
        let (cache, post) = (Cache::new(&server.settings()).unwrap(), post("p"));
        fill(&cache, &post, 1).await;
        server.kill();
        let asked = Instant::now();
        assert!(cache.update(&[(post.clone(), served(2))]).await.is_err_and(|fault| fault.is_retryable()));
        assert!(asked.elapsed() < Duration::from_secs(6), "it took {:?} to fail", asked.elapsed());
        server.restart();
        let deadline = Instant::now() + DEADLINE;
        let token = loop {
            match cache.begin_fill(&post).await {
                Ok(Some(token)) => break token,
                Ok(None) => panic!("the key survived a server that keeps nothing"),
                Err(fault) => assert!(Instant::now() < deadline, "not used again: {fault}"),
            }
        };
        assert_eq!(cache.fill(&post, &token, &served(3)).await, Ok(true));
        assert_eq!(cache.update(&[(post.clone(), served(4))]).await, Ok(1));
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_repeating_it() {
    let error = Cache::new(&Settings::at(vec!["http://:canary@host".to_owned()])).err().unwrap();
    assert!(!error.to_string().contains("canary"), "{error}");
    assert!(!format!("{:?}", Settings::at(vec!["redis://:canary@host".to_owned()])).contains("canary"));
}
