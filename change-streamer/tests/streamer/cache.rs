//! The cache: right when all is quiet, never older than it was, and never a brake on the counts.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::faulty::{Failure, Faulty, Plan};
use tally_adapters::memory::Memory;
use tally_adapters::redis;
use tally_core::Map;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::{Cache, Cached, FillToken, Outcome};
use tally_core::served::Served;
use tokio::time::Instant;

use crate::world::{BEGAN, World, Writer, brisk, eventually, post, user};

/// Fills every key as a reader would.
async fn fill(world: &World, cache: &dyn Cache, posts: &[CounterId]) {
    for post in posts {
        if let Ok(Some(token)) = cache.begin_fill(post).await {
            let counter = world.counter(post).await;
            let _ = cache.fill(post, &token, &Served::new(Some(&counter), false, BEGAN)).await;
        }
    }
}

/// No cached count differs from the table's, and at least `hits` posts are cached.
async fn is_right(world: &World, cache: &dyn Cache, posts: &[CounterId], hits: usize) -> bool {
    let Ok(cached) = cache.get(posts).await else { return false };
    if cached.iter().filter(|cached| **cached != Cached::Miss).count() < hits {
        return false;
    }
    for (post, cached) in posts.iter().zip(cached) {
        let counter = world.counter(post).await;
        if let Cached::Hit(served) = cached
            && (served.likes, served.version) != (counter.likes, counter.version)
        {
            return false;
        }
    }
    true
}

/// A cache that remembers the newest version it ever showed, and says when it shows an older one.
struct Watched<C> {
    cache: C,
    newest: std::sync::Mutex<Map<CounterId, u64>>,
    went_back: AtomicBool,
}

impl<C: Cache> Watched<C> {
    async fn look(&self, posts: &[CounterId]) {
        let Ok(cached) = self.cache.get(posts).await else { return };
        let mut newest = self.newest.lock().unwrap();
        for (post, cached) in posts.iter().zip(cached) {
            match cached {
                Cached::Hit(served) => {
                    let before = newest.insert(post.clone(), served.version).unwrap_or(0);
                    self.went_back.fetch_or(served.version < before, Ordering::Relaxed);
                }
                // Gone, or being filled: a new life of the key.
                Cached::Miss => _ = newest.remove(post),
            }
        }
    }
}

#[async_trait]
impl<C: Cache> Cache for Watched<C> {
    async fn get(&self, posts: &[CounterId]) -> Outcome<Vec<Cached>> {
        self.cache.get(posts).await
    }
    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize> {
        let outcome = self.cache.update(values).await;
        self.look(&values.iter().map(|(post, _)| post.clone()).collect::<Vec<_>>()).await;
        outcome
    }
    async fn begin_fill(&self, post: &CounterId) -> Outcome<Option<FillToken>> {
        self.cache.begin_fill(post).await
    }
    async fn fill(&self, post: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool> {
        self.cache.fill(post, token, value).await
    }
}

#[tokio::test(start_paused = true)]
async fn no_cached_count_differs_from_the_table_when_all_is_quiet_and_none_went_back() {
    let memory = Memory::new(BEGAN, 3);
    let plan = Plan::seeded(5, 4);
    let cache = Faulty::new(memory.cache(), plan.clone());
    let watched = Arc::new(Watched { cache, newest: std::sync::Mutex::default(), went_back: AtomicBool::new(false) });
    let mut world = World::twin(&memory);
    world.ports.cache = Some(watched.clone());
    let running = [world.start("a", brisk()), world.start("b", brisk())];
    let posts: Vec<CounterId> = (0..10).map(post).collect();
    let mut writer = Writer::new(&world, 5).await;
    for _ in 0..20 {
        writer.churn(60, 10, 30).await;
        fill(&world, &memory.cache(), &posts).await;
        memory.cache().evict(&posts[usize::try_from(writer.chance.token() % 10).unwrap()]);
        tokio::time::sleep(writer.chance.up_to(Duration::from_secs(1))).await;
    }
    world.exact(posts.clone()).await;
    fill(&world, &memory.cache(), &posts).await;
    eventually("the cache is right", async || is_right(&world, &memory.cache(), &posts, posts.len()).await).await;
    assert!(plan.fired() > 10);
    assert!(!watched.went_back.load(Ordering::Relaxed));
    for running in running {
        assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
    }
}

/// A cache that never answers.
struct Dead;

#[async_trait]
impl Cache for Dead {
    async fn get(&self, _: &[CounterId]) -> Outcome<Vec<Cached>> {
        std::future::pending().await
    }
    async fn update(&self, _: &[(CounterId, Served)]) -> Outcome<usize> {
        std::future::pending().await
    }
    async fn begin_fill(&self, _: &CounterId) -> Outcome<Option<FillToken>> {
        Err(Fault::Transient("dead".to_owned()))
    }
    async fn fill(&self, _: &CounterId, _: &FillToken, _: &Served) -> Outcome<bool> {
        Err(Fault::Transient("dead".to_owned()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_hangs_or_fails_holds_no_count_back() {
    let plan = Plan::default();
    (0..100_000).for_each(|_| plan.fail_next("update", Failure::Dropped));
    let failing = |memory: &Memory| -> Arc<dyn Cache> { Arc::new(Faulty::new(memory.cache(), plan.clone())) };
    let hanging = |_: &Memory| -> Arc<dyn Cache> { Arc::new(Dead) };
    for cache in [&failing as &dyn Fn(&Memory) -> Arc<dyn Cache>, &hanging] {
        let memory = Memory::new(BEGAN, 2);
        let mut world = World::twin(&memory);
        world.ports.cache = Some(cache(&memory));
        let running = world.start("a", brisk());
        let mut writer = Writer::new(&world, 5).await;
        writer.churn(300, 10, 30).await;
        let began = Instant::now();
        world.exact((0..10).map(post)).await;
        assert!(began.elapsed() < Duration::from_secs(15), "it took {:?}", began.elapsed());
        assert!(running.stop(Duration::from_secs(20)).await.exit().is_clean());
    }
}

/// A Redis of our own, gone when dropped.
struct Server(Child, std::path::PathBuf);

impl Server {
    fn start(port: u16, folder: &std::path::Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let binary = std::env::var("TALLY_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(&binary);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]).arg(port.to_string());
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{binary}: {error}"));
        Self(child, folder.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

#[tokio::test]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn a_redis_killed_and_started_again_under_load_heals_without_a_restart_of_ours() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = std::env::temp_dir().join(format!("tally-streamer-redis-{}", std::process::id()));
    let server = Server::start(port, &folder);
    let cache = redis::Cache::new(&redis::Settings::at(vec![format!("redis://127.0.0.1:{port}")])).unwrap();
    let watched = Arc::new(Watched { cache, newest: std::sync::Mutex::default(), went_back: AtomicBool::new(false) });
    let memory = Memory::new(BEGAN, 2);
    let mut world = World::twin(&memory);
    world.ports.cache = Some(watched.clone());
    let running = world.start("a", brisk());
    let posts: Vec<CounterId> = (0..50).map(post).collect();
    let mut writer = Writer::new(&world, 5).await;
    let (mut server, mut rounds) = (Some(server), 0);
    eventually("a redis that was restarted has counts again", async || {
        rounds += 1;
        writer.churn(100, 50, 40).await;
        fill(&world, &watched.cache, &posts).await;
        match rounds {
            3 => server = None,
            6 => server = Some(Server::start(port, &folder)),
            _ => {}
        }
        let cached = watched.cache.get(&posts).await.unwrap_or_default();
        rounds > 8 && cached.iter().filter(|cached| **cached != Cached::Miss).count() > 40
    })
    .await;
    let began = world.now();
    eventually("all is applied", async || {
        world.states().await.iter().all(|state| state.checkpoint.closed || state.checkpoint.at > began)
    })
    .await;
    writer.like(&post(3), &user("last")).await;
    eventually("the cache is right", async || is_right(&world, &watched.cache, &posts, 40).await).await;
    world.exact(posts).await;
    assert!(!watched.went_back.load(Ordering::Relaxed));
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}
