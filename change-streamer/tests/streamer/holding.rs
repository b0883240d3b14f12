//! The hold behind a loss of stream: from the gap's record on, and for eight seconds, nothing behind the loss is applied and
//! no checkpoint passes it.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::memory::Memory;
use tally_core::ids::StreamShardId;
use tally_core::lineage::HOLD;
use tally_core::ports::Gap;
use tally_emulator::Config as EmulatorConfig;
use tally_service::Running;

use crate::doctored::Doctored;
use crate::world::{BEGAN, World, Writer, brisk, eventually, post, user};

const GRACE: Duration = Duration::from_secs(9);
const HOUR: Duration = Duration::from_secs(3600);

/// Waits for the gap of this kind to be opened again, after `since` if it was open before.
async fn opened(world: &World, kind: &str, since: Option<&Gap>) -> Gap {
    let mut found = None;
    eventually("the loss is recorded", async || {
        let gaps = world.gaps().await;
        found = gaps.into_iter().find(|gap| gap.kind == kind && since.is_none_or(|since| gap.opened > since.opened));
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// What a worker stores, in one text: every checkpoint without its lease, and the counter of the first post.
async fn stored(world: &World) -> String {
    let checkpoints: Vec<_> = world.states().await.into_iter().map(|state| state.checkpoint).collect();
    format!("{checkpoints:?} {:?}", world.counter(&post(0)).await)
}

/// Asserts that nothing is stored until the hold behind `gap` is over, and that something is afterwards.
async fn is_held(world: &World, gap: &Gap) {
    let before = stored(world).await;
    // The last look has to end before the hold does.
    while world.now().plus(Duration::from_millis(100)) < gap.opened.plus(HOLD) {
        assert_eq!(stored(world).await, before, "{:?} after the record", world.now().since(gap.opened));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eventually("what lies behind the loss is applied", async || stored(world).await != before).await;
    assert!(world.now() >= gap.opened.plus(HOLD));
}

async fn stop(running: Running) {
    assert!(running.stop(GRACE).await.exit().is_clean());
}

/// A stream whose records were trimmed behind the checkpoint, with one record behind the loss.
async fn trimmed(seed: u64) -> (World, Writer) {
    let memory = Memory::new(BEGAN, 1);
    let world = World::twin(&memory);
    let mut writer = Writer::new(&world, seed).await;
    let first = world.start("first", brisk());
    writer.churn(100, 3, 20).await;
    world.exact((0..3).map(post)).await;
    stop(first).await;
    writer.churn(100, 3, 20).await;
    memory.streams().trim();
    writer.like(&post(0), &user("behind")).await;
    (world, writer)
}

#[tokio::test(start_paused = true)]
async fn behind_a_trim_nothing_is_applied_until_the_hold_is_over() {
    let (world, _) = trimmed(1).await;
    let running = world.start("second", brisk());
    let gap = opened(&world, "trimmed", None).await;
    is_held(&world, &gap).await;
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_takes_over_during_the_hold_meets_the_loss_and_holds_for_itself() {
    let (world, _) = trimmed(2).await;
    let second = world.start("second", brisk());
    let gap = opened(&world, "trimmed", None).await;
    tokio::time::sleep(HOLD / 2).await;
    let before = stored(&world).await;
    second.kill().await;
    let third = world.start("third", brisk());
    let again = opened(&world, "trimmed", Some(&gap)).await;
    assert_eq!(stored(&world).await, before);
    is_held(&world, &again).await;
    stop(third).await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_that_others_open_again_and_again_does_not_prolong_the_hold() {
    let (world, _) = trimmed(3).await;
    let running = world.start("second", brisk());
    let gap = opened(&world, "trimmed", None).await;
    let before = stored(&world).await;
    let shard = world.states().await.remove(0).checkpoint.id;
    while stored(&world).await == before {
        let loss = tally_core::lineage::Loss::Trimmed(shard.clone());
        world.ports.checkpoints.open_gap(&loss, world.now()).await.unwrap();
        assert!(world.now() < gap.opened.plus(HOLD * 2), "the hold counts from the worker's own record");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_vanished_is_not_closed_until_the_hold_is_over_so_its_children_are_not_read() {
    let memory = Memory::new(BEGAN, 1);
    let stream = Doctored::new(memory.streams());
    let mut world = World::twin(&memory);
    world.ports.stream = Arc::new(stream.clone());
    let mut writer = Writer::new(&world, 1).await;
    writer.churn(50, 3, 20).await;
    let parent = StreamShardId::from("shardId-00000000");
    memory.streams().close(&parent, 2);
    stream.ills().hidden.insert(parent.clone());
    stream.ills().dead.insert(parent.clone());
    writer.like(&post(0), &user("behind")).await;
    let running = world.start("a", brisk());
    let gap = opened(&world, "vanished", None).await;
    is_held(&world, &gap).await;
    eventually("the children are read", async || world.counter(&post(0)).await.likes == 1).await;
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn of_a_stream_first_seen_with_records_missing_nothing_is_applied_until_the_hold_is_over() {
    let (world, _) = World::emulated(EmulatorConfig { shards: 2, ..EmulatorConfig::default() }).await;
    let mut writer = Writer::new(&world, 1).await;
    tokio::time::sleep(HOUR * 21).await;
    writer.like(&post(0), &user(1)).await;
    let running = world.start("a", brisk());
    let gap = opened(&world, "unfollowed", None).await;
    is_held(&world, &gap).await;
    eventually("the stream is followed", async || world.counter(&post(0)).await.likes == 1).await;
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn behind_an_outage_nothing_is_applied_until_the_hold_is_over() {
    let config = EmulatorConfig { shards: 1, roll_after: None, ..EmulatorConfig::default() };
    let (world, emulator) = World::emulated(config).await;
    let first = world.start("first", brisk());
    world.quiet().await;
    first.kill().await;
    let mut writer = Writer::new(&world, 1).await;
    writer.like(&post(0), &user(1)).await;
    tokio::time::sleep(HOUR * 25).await;
    emulator.trim("likes", None, None).unwrap();
    writer.like(&post(0), &user(2)).await;
    let second = world.start("second", brisk());
    let gap = opened(&world, "outage", None).await;
    is_held(&world, &gap).await;
    eventually("the shard is read on", async || world.counter(&post(0)).await.likes == 1).await;
    stop(second).await;
}
