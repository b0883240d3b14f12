//! What leaves the process besides counters: whether it says how exact it is, and that a destination which does not take it
//! holds up neither the counts nor the end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::memory::Memory;
use tally_adapters::memory::log::Broker;
use tally_change_streamer::FeedPort;
use tally_core::counter::{Counter, ShardTally};
use tally_core::ids::{CounterId, RowKey, StreamShardId};
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Cache, Cached, Outcome, Producer};
use tally_core::served::Served;
use tally_emulator::Config as EmulatorConfig;
use tally_service::Running;
use tokio::time::Instant;

use crate::world::{BEGAN, World, Writer, brisk, eventually, key, post, sdk, user};

/// A world with a cache in which every post asked for is kept.
fn cached_world(memory: &Memory) -> World {
    let mut world = World::twin(memory);
    world.ports.cache = Some(Arc::new(memory.cache()));
    world
}

async fn fill(cache: &dyn Cache, post: &CounterId, served: Served) {
    let token = cache.begin_fill(post).await.unwrap().expect("no other reader fills");
    assert!(cache.fill(post, &token, &served).await.unwrap());
}

async fn cached(cache: &dyn Cache, post: &CounterId) -> Served {
    match cache.get(std::slice::from_ref(post)).await.unwrap().remove(0) {
        Cached::Hit(served) => served,
        Cached::Miss => panic!("{post} is not cached"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_count_updated_while_a_gap_is_open_is_cached_as_one_that_may_be_wrong() {
    let memory = Memory::new(BEGAN, 1);
    let (world, cache) = (cached_world(&memory), memory.cache());
    let mut writer = Writer::new(&world, 1).await;
    let first = world.start("a", brisk());
    fill(&cache, &post(0), Served::default()).await;
    writer.like(&post(0), &user(1)).await;
    eventually("the count is cached", async || cached(&cache, &post(0)).await.likes == 1).await;
    assert!(cached(&cache, &post(0)).await.exact, "nothing is lost yet");
    world.quiet().await;
    assert!(first.stop(Duration::from_secs(9)).await.exit().is_clean());

    writer.like(&post(0), &user(2)).await;
    memory.streams().trim();
    let second = world.start("b", brisk());
    writer.like(&post(0), &user(3)).await;
    eventually("the next count is cached", async || cached(&cache, &post(0)).await.version == 2).await;
    let served = cached(&cache, &post(0)).await;
    assert_eq!((served.likes, served.exact), (2, false), "one like was lost, and the count says so");
    assert_eq!(world.gaps().await.len(), 1);
    assert!(second.stop(Duration::from_secs(9)).await.exit().is_clean());
}

async fn queued(world: &World) -> Vec<RowKey> {
    let queued = world.ports.recounts.queued(None).await.unwrap().items;
    queued.into_iter().map(|queued| queued.key).collect()
}

#[tokio::test(start_paused = true)]
async fn a_count_that_an_update_is_refused_for_is_cached_as_one_that_may_be_wrong() {
    let memory = Memory::new(BEGAN, 1);
    let (world, cache) = (cached_world(&memory), memory.cache());
    let row_key = key(&post(0), &user(1));
    let edge = ShardTally { rows: i64::MAX, ..ShardTally::default() };
    let counter = Counter { likes: i64::MAX, shards: [(row_key.shard, edge)].into(), ..Counter::default() };
    memory.counts().plant(&post(0), counter.clone());
    let served = Served::new(Some(&counter), false, BEGAN);
    assert!(served.exact);
    fill(&cache, &post(0), served).await;
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    writer.like(&post(0), &user(1)).await;
    world.quiet().await;
    eventually("the cache knows", async || !cached(&cache, &post(0)).await.exact).await;
    assert!(!Served::new(Some(&world.counter(&post(0)).await), false, BEGAN).exact, "and so does the table");
    assert_eq!(queued(&world).await, [row_key]);
    assert!(world.gaps().await.is_empty(), "one count is not all of them");
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_can_be_neither_changed_nor_marked_is_a_gap_and_the_shard_goes_on() {
    use aws_sdk_dynamodb::types::AttributeValue;
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 1, ..EmulatorConfig::default() }).await;
    let filler = AttributeValue::S("x".repeat(400 * 1024 - 30));
    let item =
        sdk(&emulator).put_item().table_name("like_counts").item("post_id", AttributeValue::S(post(0).to_string()));
    item.item("filler", filler).send().await.unwrap();
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    writer.like(&post(0), &user(1)).await;
    writer.like(&post(1), &user(1)).await;
    world.exact([post(1)]).await;
    assert_eq!(world.gaps().await.into_iter().map(|gap| gap.kind).collect::<Vec<_>>(), ["refused"]);
    assert!(world.ports.recounts.audit_queued().await.unwrap().is_some());
    assert_eq!(queued(&world).await, [key(&post(0), &user(1))]);
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

/// A broker that never answers.
struct Silent;

#[async_trait]
impl Producer for Silent {
    async fn send(&self, _: Outgoing<'_>) -> Outcome<Written> {
        std::future::pending().await
    }
}

/// Stops, cleanly and soon enough for the workers that wait for the leases.
async fn ends_in_time(world: &World, running: Running) {
    let asked = Instant::now();
    assert!(running.stop(Duration::from_secs(20)).await.exit().is_clean());
    assert!(asked.elapsed() < Duration::from_secs(5), "it took {:?}", asked.elapsed());
    assert!(world.states().await.iter().all(|state| state.lease.is_none()), "the leases are given back");
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_hangs_or_fails_holds_up_neither_the_counts_nor_the_end() {
    let down = Broker::new();
    down.create_topic("counts", 4);
    down.set_down(true);
    for producer in [Arc::new(Silent) as Arc<dyn Producer>, Arc::new(down)] {
        let memory = Memory::new(BEGAN, 2);
        let mut world = World::twin(&memory);
        world.ports.feed = Some(FeedPort { producer, topic: "counts".to_owned() });
        let running = world.start("a", brisk());
        let mut writer = Writer::new(&world, 5).await;
        writer.churn(300, 10, 30).await;
        world.exact((0..10).map(post)).await;
        ends_in_time(&world, running).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_touched_once_per_stream_shard_by_a_new_process_each_time_stays_small() {
    let memory = Memory::new(BEGAN, 1);
    let world = World::twin(&memory);
    let mut writer = Writer::new(&world, 1).await;
    for round in 0..20u64 {
        let running = world.start(&format!("w{round}"), brisk());
        writer.like(&post(0), &user(round)).await;
        world.exact([post(0)]).await;
        // The next one knows of this shard's end, and nothing of the counter.
        let open = world.states().await.into_iter().find(|state| !state.checkpoint.closed).unwrap().checkpoint.id;
        memory.streams().close(&open, 1);
        eventually("the shard is closed", async || is_closed(&world, &open).await).await;
        assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
    }
    let marks = world.counter(&post(0)).await.watermarks;
    assert!(marks.marks().len() <= 2, "{marks:?}");
}

async fn is_closed(world: &World, id: &StreamShardId) -> bool {
    world.states().await.iter().any(|state| state.checkpoint.id == *id && state.checkpoint.closed)
}
