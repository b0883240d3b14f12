//! Listings and shards that are not what they should be: what can still be read is read, what cannot is recorded, and
//! readiness says so.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::memory::Memory;
use tally_core::ids::{Ordinal, StreamShardId};
use tally_core::ports::QueueReason;
use tally_service::Running;

use crate::doctored::Doctored;
use crate::world::{BEGAN, World, Writer, brisk, eventually, key, post, user};

fn doctored(memory: &Memory) -> (World, Doctored) {
    let stream = Doctored::new(memory.streams());
    let mut world = World::twin(memory);
    world.ports.stream = Arc::new(stream.clone());
    (world, stream)
}

fn is_ready(running: &Running) -> bool {
    running.host().readiness().report().ready
}

async fn shards_of(world: &World) -> Vec<StreamShardId> {
    world.states().await.into_iter().map(|state| state.checkpoint.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_living_shard_that_listings_leave_out_is_read_on_and_given_up_with_a_gap_once_it_is_gone() {
    let memory = Memory::new(BEGAN, 1);
    let (world, stream) = doctored(&memory);
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    world.quiet().await;
    let parent = shards_of(&world).await.remove(0);
    stream.ills().hidden.insert(parent.clone());
    // Long enough for several listings.
    tokio::time::sleep(Duration::from_secs(120)).await;
    writer.churn(50, 3, 20).await;
    world.exact((0..3).map(post)).await;
    assert!(world.gaps().await.is_empty(), "what can be read is not lost");

    memory.streams().close(&parent, 1);
    stream.ills().dead.insert(parent.clone());
    writer.like(&post(0), &user("behind")).await;
    eventually("the dead shard is closed", async || {
        world.states().await.iter().any(|state| state.checkpoint.id == parent && state.checkpoint.closed)
    })
    .await;
    assert_eq!(world.gaps().await.into_iter().map(|gap| gap.kind).collect::<Vec<_>>(), ["vanished"]);
    assert!(world.ports.recounts.audit_queued().await.unwrap().is_some());
    world.quiet().await;
    world.agrees(&post(0)).await.unwrap();
    eventually("all is well again", async || is_ready(&running)).await;
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn an_ancestor_that_was_never_listed_is_numbered_closed_and_recorded_as_a_loss() {
    let memory = Memory::new(BEGAN, 1);
    let (world, stream) = doctored(&memory);
    let mut writer = Writer::new(&world, 1).await;
    writer.churn(50, 3, 20).await;
    let parent = StreamShardId::from("shardId-00000000");
    memory.streams().close(&parent, 1);
    stream.ills().hidden.insert(parent.clone());
    stream.ills().dead.insert(parent.clone());
    let before = world.count_rows(&post(0)).await.values().sum::<i64>();
    let running = world.start("a", brisk());
    eventually("the loss is recorded", async || world.gaps().await.iter().any(|gap| gap.kind == "vanished")).await;
    writer.like(&post(0), &user("new")).await;
    world.quiet().await;
    let states = world.states().await;
    let ordinals: Vec<_> = states.iter().map(|state| (state.checkpoint.ordinal, state.checkpoint.closed)).collect();
    assert_eq!(ordinals, [(Ordinal(1), true), (Ordinal(2), false)], "the ancestor first");
    assert!(before > 0);
    assert_eq!(world.counter(&post(0)).await.likes, 1, "the child is read");
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_follows_nothing_says_that_it_is_not_ready() {
    let memory = Memory::new(BEGAN, 1);
    let (world, stream) = doctored(&memory);
    let running = world.start("a", brisk());
    world.quiet().await;
    assert!(is_ready(&running));
    let shard = shards_of(&world).await.remove(0);

    stream.ills().off = true;
    eventually("a table without a stream is told", async || !is_ready(&running)).await;
    stream.ills().off = false;
    eventually("and so is that it has one again", async || is_ready(&running)).await;

    stream.ills().dead.insert(shard.clone());
    eventually("a listed shard that is gone is told", async || !is_ready(&running)).await;
    stream.ills().dead.clear();
    eventually("and so is that it is back", async || is_ready(&running)).await;

    // As when a stream is switched off: its shards end, and none continues them.
    memory.streams().close(&shard, 1);
    let child = StreamShardId::from("shardId-00000001");
    stream.ills().hidden.insert(child.clone());
    eventually("a stream without an open shard is told", async || !is_ready(&running)).await;
    stream.ills().hidden.clear();
    eventually("and so is that it has one again", async || is_ready(&running)).await;
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn two_open_shards_that_feed_one_row_key_make_it_suspect_and_queue_it() {
    let memory = Memory::new(BEGAN, 1);
    let (world, stream) = doctored(&memory);
    stream.ills().orphaned = true;
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    let key = key(&post(0), &user(1));
    writer.like(&post(0), &user(1)).await;
    eventually("the first shard feeds it", async || world.agrees(&post(0)).await.is_ok()).await;
    memory.streams().close(&shards_of(&world).await[0], 1);
    writer.unlike(&post(0), &user(1)).await;
    eventually("the second shard feeds it, too", async || world.agrees(&post(0)).await.is_ok()).await;
    let tally = world.counter(&post(0)).await.shards[&key.shard].clone();
    assert!(tally.suspect, "{tally:?}");
    let queued = world.ports.recounts.queued(None).await.unwrap().items;
    assert_eq!(
        queued.into_iter().map(|queued| (queued.key, queued.reason)).collect::<Vec<_>>(),
        [(key, QueueReason::Suspect)]
    );
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn an_empty_page_in_a_backlog_claims_no_time_that_was_not_read() {
    let memory = Memory::new(BEGAN, 1);
    let (world, stream) = doctored(&memory);
    let mut rules = brisk();
    // Slow enough to be seen at work.
    rules.concurrency = 1;
    rules.cut.records = 10;
    let running = world.start("a", rules);
    world.quiet().await;
    stream.ills().holes = Some(2);
    let mut writer = Writer::new(&world, 1).await;
    for n in 0..4_000 {
        writer.set(post(n), user(n), tally_core::event::Action::Like).await;
    }
    writer.flush().await;
    let written = world.now();
    // Behind by more than what it takes to read one page, and the last record is not in yet: nothing later is claimed.
    let last = post(3_999);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
    loop {
        let (at, counted) = (world.states().await[0].checkpoint.at, world.counter(&last).await.likes);
        assert!(counted == 1 || at <= written, "{at} is claimed, and nothing of {written} is applied");
        if counted == 1 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}
