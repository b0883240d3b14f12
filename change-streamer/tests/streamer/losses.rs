//! Losses of stream and records that are none of ours: recorded, reported, and nothing silently wrong.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, StreamSpecification, StreamViewType};
use tally_adapters::memory::Memory;
use tally_core::counter::{Counter, ShardTally};
use tally_core::ids::RowKey;
use tally_core::ports::QueueReason;
use tally_core::served::Served;
use tally_emulator::{Config as EmulatorConfig, Fault, Rule};

use crate::simulation::seeds;
use crate::world::{BEGAN, World, Writer, brisk, eventually, key, post, sdk, user};

const HOUR: Duration = Duration::from_secs(3600);

/// A gap is open, every answer says that it may not be exact, and an audit is queued.
async fn is_said(world: &World, kind: &str) {
    eventually("the loss is recorded", async || world.gaps().await.iter().any(|gap| gap.kind == kind)).await;
    assert!(!Served::new(Some(&world.counter(&post(0)).await), !world.gaps().await.is_empty(), BEGAN).exact);
    assert!(world.ports.recounts.audit_queued().await.unwrap().is_some(), "an audit is queued");
}

async fn queued(world: &World) -> Vec<(RowKey, QueueReason)> {
    let queued = world.ports.recounts.queued(None).await.unwrap().items;
    queued.into_iter().map(|queued| (queued.key, queued.reason)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_trim_behind_the_checkpoint_is_a_gap_and_the_shard_goes_on() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let mut writer = Writer::new(&world, 1).await;
    let first = world.start("a", brisk());
    writer.churn(200, 5, 20).await;
    world.exact((0..5).map(post)).await;
    assert!(first.stop(Duration::from_secs(9)).await.exit().is_clean());
    writer.churn(200, 5, 20).await;
    memory.streams().trim();
    let second = world.start("b", brisk());
    is_said(&world, "trimmed").await;
    let before = world.counter(&post(0)).await.version;
    writer.churn(200, 5, 20).await;
    world.quiet().await;
    assert!(world.counter(&post(0)).await.version > before, "the shard goes on");
    assert!(second.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn after_25_hours_away_with_shards_born_and_trimmed_nothing_is_silently_wrong() {
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 3, ..EmulatorConfig::default() }).await;
    let mut writer = Writer::new(&world, 1).await;
    let first = world.start("a", brisk());
    writer.churn(200, 8, 20).await;
    world.exact((0..8).map(post)).await;
    assert!(first.stop(Duration::from_secs(9)).await.exit().is_clean());
    for _ in 0..25 {
        writer.churn(100, 8, 20).await;
        emulator.roll_shards("likes", None).unwrap();
        tokio::time::sleep(HOUR).await;
    }
    let second = world.start("b", brisk());
    is_said(&world, "vanished").await;
    world.quiet().await;
    let states = world.states().await;
    let open = states.iter().filter(|state| !state.checkpoint.closed).count();
    assert_eq!(open, 3, "every living shard is read, every dead one closed: {states:#?}");
    let before = world.counter(&post(0)).await.version;
    writer.churn(200, 8, 20).await;
    world.quiet().await;
    assert!(world.counter(&post(0)).await.version > before);
    assert!(second.stop(Duration::from_secs(9)).await.exit().is_clean());
}

/// After so long, what one worker closes it may forget at once, between another's look at it and that one's own closing.
#[tokio::test(start_paused = true)]
async fn workers_that_come_back_together_after_three_days_get_by_whoever_closes_what_is_gone() {
    for seed in 0..(seeds() / 6).max(1) {
        let config = EmulatorConfig { shards: 1, seed, ..EmulatorConfig::default() };
        let (world, emulator) = World::emulated(config).await;
        let mut writer = Writer::new(&world, seed).await;
        let before = world.start("a", brisk());
        writer.churn(100, 8, 20).await;
        world.exact((0..8).map(post)).await;
        before.kill().await;
        for _ in 0..3 {
            emulator.roll_shards("likes", None).unwrap();
            tokio::time::sleep(24 * HOUR).await;
        }
        emulator.set_faults(vec![Rule::new(Fault::Latency { min_ms: 1, max_ms: 50 })]);
        let mut after = Vec::new();
        for nth in 0..8 {
            after.push(world.start(&format!("after-{seed}-{nth}"), brisk()));
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        is_said(&world, "vanished").await;
        world.quiet().await;
        for running in after {
            let ended = running.stop(Duration::from_secs(9)).await;
            assert!(ended.exit().is_clean(), "seed {seed}: {ended:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_slept_for_25_hours_over_an_unread_shard_knows_what_it_may_have_missed() {
    let (world, emulator) =
        World::emulated(EmulatorConfig { shards: 1, roll_after: None, ..EmulatorConfig::default() }).await;
    let first = world.start("a", brisk());
    world.quiet().await;
    first.kill().await;
    // Nothing was ever read of the shard, so no checkpoint has a position that could turn out to be trimmed.
    let mut writer = Writer::new(&world, 1).await;
    writer.like(&post(0), &user(1)).await;
    tokio::time::sleep(HOUR * 25).await;
    emulator.trim("likes", None, None).unwrap();
    let second = world.start("b", brisk());
    is_said(&world, "outage").await;
    assert!(second.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_stream_switched_off_and_on_again_is_a_gap_and_its_shards_get_numbers_of_their_own() {
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 2, ..EmulatorConfig::default() }).await;
    let sdk = sdk(&emulator);
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    writer.churn(200, 5, 20).await;
    world.exact((0..5).map(post)).await;
    let before: Vec<u64> = world.states().await.iter().map(|state| state.checkpoint.ordinal.0).collect();
    let off = StreamSpecification::builder().stream_enabled(false).build().unwrap();
    let on = StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewAndOldImages);
    sdk.update_table().table_name("likes").stream_specification(off).send().await.unwrap();
    // Long enough for a listing to find no stream.
    tokio::time::sleep(Duration::from_secs(45)).await;
    sdk.update_table().table_name("likes").stream_specification(on.build().unwrap()).send().await.unwrap();
    is_said(&world, "unfollowed").await;
    world.quiet().await;
    let after: Vec<u64> = world.states().await.iter().map(|state| state.checkpoint.ordinal.0).collect();
    assert!(after.iter().min() > before.iter().max(), "{before:?} then {after:?}");
    let rows = async || world.count_rows(&post(0)).await.values().sum::<i64>();
    let (counted, there) = (world.counter(&post(0)).await.likes, rows().await);
    for n in 0..40 {
        writer.set(post(0), user(n), tally_core::event::Action::Like).await;
    }
    writer.flush().await;
    world.quiet().await;
    let (counted, rows) = (world.counter(&post(0)).await.likes - counted, rows().await - there);
    assert!(rows > 0);
    assert_eq!(counted, rows, "everything from now on is counted");
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_first_start_on_a_table_that_already_has_rows_is_a_gap() {
    let (world, _) = World::emulated(EmulatorConfig { shards: 2, ..EmulatorConfig::default() }).await;
    let mut writer = Writer::new(&world, 1).await;
    writer.churn(100, 5, 20).await;
    tokio::time::sleep(HOUR * 21).await;
    let running = world.start("a", brisk());
    is_said(&world, "unfollowed").await;
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_first_start_on_a_young_stream_loses_nothing_and_says_so() {
    let (world, _) = World::emulated(EmulatorConfig { shards: 2, ..EmulatorConfig::default() }).await;
    let mut writer = Writer::new(&world, 1).await;
    writer.churn(100, 5, 20).await;
    tokio::time::sleep(HOUR * 3).await;
    let running = world.start("a", brisk());
    world.exact((0..5).map(post)).await;
    assert!(world.gaps().await.is_empty(), "{:?}", world.gaps().await);
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn records_of_another_shape_are_passed_over_and_the_shard_goes_on() {
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 1, ..EmulatorConfig::default() }).await;
    let sdk = sdk(&emulator);
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    let long = "x".repeat(1500);
    for (pk, sort) in [
        ("order-7", "u"),
        ("p-0#0x", "u"),
        ("#1", "u"),
        ("p-0#0", "\u{1}unknown"),
        (&long, "u"),
        ("p-0#1", &long[..900]),
    ] {
        let put = sdk.put_item().table_name("likes").item("pk", AttributeValue::S(pk.to_owned()));
        put.item("user_id", AttributeValue::S(sort.to_owned()))
            .item("n", AttributeValue::N("1".into()))
            .send()
            .await
            .unwrap();
        writer.churn(20, 3, 20).await;
    }
    world.exact((0..3).map(post)).await;
    assert!(world.gaps().await.is_empty());
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_count_below_zero_is_kept_as_it_is_and_queued_once() {
    let memory = Memory::new(BEGAN, 1);
    let world = World::twin(&memory);
    let mut writer = Writer::new(&world, 1).await;
    writer.like(&post(0), &user(1)).await;
    memory.streams().trim();
    let running = world.start("a", brisk());
    world.quiet().await;
    writer.unlike(&post(0), &user(1)).await;
    world.quiet().await;
    let counter = world.counter(&post(0)).await;
    assert_eq!((counter.likes, counter.is_sound()), (-1, false));
    assert_eq!(queued(&world).await, [(key(&post(0), &user(1)), QueueReason::Negative)]);
    writer.like(&post(0), &user(1)).await;
    world.quiet().await;
    assert_eq!(world.counter(&post(0)).await.likes, 0);
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_count_at_the_64_bit_edge_is_left_to_a_recount_and_the_shard_goes_on() {
    let memory = Memory::new(BEGAN, 1);
    let world = World::twin(&memory);
    let edge = ShardTally { rows: i64::MAX, ..ShardTally::default() };
    let tally = (key(&post(0), &user(1)).shard, edge);
    memory.counts().plant(&post(0), Counter { likes: i64::MAX, shards: [tally].into(), ..Counter::default() });
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    writer.like(&post(0), &user(1)).await;
    writer.like(&post(1), &user(1)).await;
    world.exact([post(1)]).await;
    assert_eq!(queued(&world).await, [(key(&post(0), &user(1)), QueueReason::Drift)]);
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_count_at_the_64_bit_edge_of_the_table_does_not_hold_the_shard_up_either() {
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 1, ..EmulatorConfig::default() }).await;
    let sdk = sdk(&emulator);
    let shard = key(&post(0), &user(1)).shard;
    let edge = AttributeValue::N(i64::MAX.to_string());
    let item = sdk.put_item().table_name("like_counts").item("post_id", AttributeValue::S(post(0).to_string()));
    item.item("likes", edge.clone()).item(format!("s{shard}"), edge).send().await.unwrap();
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    writer.like(&post(0), &user(1)).await;
    writer.like(&post(1), &user(1)).await;
    world.exact([post(1)]).await;
    assert_eq!(queued(&world).await, [(key(&post(0), &user(1)), QueueReason::Suspect)]);
    let counter = world.counter(&post(0)).await;
    assert_eq!((counter.likes, counter.is_sound()), (i64::MAX, false), "what is stored is beyond 64 bits");
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}
