//! Workers side by side: balanced, handed over, taken over; and what a lone one does when nothing happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::faulty::{Failure, Faulty, Plan};
use tally_adapters::memory::Memory;
use tally_change_streamer::Rules;
use tally_core::ids::{Ordinal, StreamShardId};
use tally_core::ports::Worker;
use tally_emulator::{Config as EmulatorConfig, Fault, Rule};
use tokio::time::Instant;

use crate::world::{BEGAN, World, Writer, brisk, eventually, post};

async fn loads(world: &World) -> BTreeMap<Worker, usize> {
    let mut loads = BTreeMap::new();
    for lease in
        world.states().await.into_iter().filter(|state| !state.checkpoint.closed).filter_map(|state| state.lease)
    {
        *loads.entry(lease.holder).or_default() += 1;
    }
    loads
}

#[tokio::test(start_paused = true)]
async fn shards_are_balanced_handed_over_on_a_stop_and_taken_over_after_a_crash() {
    let memory = Memory::new(BEGAN, 8);
    let world = World::twin(&memory);
    let first = world.start("a", brisk());
    eventually("one worker has all", async || loads(&world).await.values().copied().collect::<Vec<_>>() == [8]).await;
    let (second, third) = (world.start("b", brisk()), world.start("c", brisk()));
    eventually("three workers share", async || {
        let loads = loads(&world).await;
        loads.len() == 3 && loads.values().all(|load| (2..=3).contains(load))
    })
    .await;

    let names = loads(&world).await;
    assert!(second.stop(Duration::from_secs(20)).await.exit().is_clean());
    assert_eq!(loads(&world).await.len(), 2, "its leases are given back at once");
    third.kill().await;
    let crashed = Instant::now();
    eventually("the last one has all", async || {
        let loads = loads(&world).await;
        loads.len() == 1 && loads.values().sum::<usize>() == 8 && names.contains_key(loads.keys().next().unwrap())
    })
    .await;
    assert!(crashed.elapsed() < Duration::from_secs(10), "it took {:?}", crashed.elapsed());
    assert!(first.stop(Duration::from_secs(20)).await.exit().is_clean());
    assert!(loads(&world).await.is_empty());
}

/// Seen at the beat after it, a third of a lease later at most, and taken when it has stood still for long enough since.
#[tokio::test(start_paused = true)]
async fn what_a_crashed_worker_held_is_taken_when_it_is_stale_and_not_at_some_beat_after() {
    let memory = Memory::new(BEGAN, 8);
    let world = World::twin(&memory);
    let (rules, last) = (brisk(), world.start("a", brisk()));
    for nth in 0..8_u32 {
        let other = world.start(&format!("crash-{nth}"), rules);
        eventually("two workers share", async || loads(&world).await.into_values().eq([4, 4])).await;
        tokio::time::sleep(Duration::from_millis(250) * nth).await;
        other.kill().await;
        let crashed = Instant::now();
        eventually("the last one has all", async || loads(&world).await.into_values().eq([8])).await;
        let took = crashed.elapsed();
        assert!(took <= rules.lease.unwrap().mul_f64(4.0 / 3.0), "crash {nth}: it took {took:?}");
    }
    assert!(last.stop(Duration::from_secs(20)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn children_are_read_after_their_parent_and_the_floor_follows() {
    let memory = Memory::new(BEGAN, 1);
    let (world, streams) = (World::twin(&memory), memory.streams());
    let running = world.start("a", brisk());
    let mut writer = Writer::new(&world, 3).await;
    for round in 1..=20 {
        writer.churn(40, 3, 20).await;
        world.quiet().await;
        let open: Vec<StreamShardId> = world
            .states()
            .await
            .into_iter()
            .filter(|state| !state.checkpoint.closed)
            .map(|state| state.checkpoint.id)
            .collect();
        streams.close(&open[0], 1 + round % 2);
    }
    writer.churn(40, 3, 20).await;
    world.exact((0..3).map(post)).await;
    let label = world.label().await;
    let registry = world.ports.checkpoints.registry(&label).await.unwrap().unwrap();
    assert!(registry.floor > Some(Ordinal(3)), "{registry:?}");
    let states = world.states().await;
    for state in &states {
        let parent = states.iter().find(|other| Some(&other.checkpoint.id) == state.checkpoint.parent.as_ref());
        if let Some(parent) = parent {
            assert!(parent.checkpoint.ordinal < state.checkpoint.ordinal, "ancestors have smaller numbers");
            assert!(parent.checkpoint.closed || state.checkpoint.sequence.is_none(), "a parent is closed first");
        }
    }
    let hot = world.counter(&post(0)).await;
    assert!(hot.watermarks.floor().is_some(), "nothing was pruned: {hot:?}");
    assert!(hot.shards.values().all(|tally| !tally.suspect), "one row key, one stream shard at a time: {hot:?}");
    assert!(world.gaps().await.is_empty());
    assert!(running.stop(Duration::from_secs(20)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_claims_no_time_that_is_not_applied() {
    let memory = Memory::new(BEGAN, 1);
    let plan = Plan::default();
    let mut world = World::twin(&memory);
    world.ports.counts = Arc::new(Faulty::new(memory.counts(), plan.clone()));
    let running = world.start("a", brisk());
    let mut writer = Writer::new(&world, 3).await;
    writer.churn(10, 3, 20).await;
    world.quiet().await;
    (0..40).for_each(|_| plan.fail_next("apply", Failure::Dropped));
    let written = world.now();
    writer.like(&post(1), &crate::world::user("stuck")).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(plan.fired() > 5, "the update is being refused");
    let at = world.states().await[0].checkpoint.at;
    assert!(at <= written, "{at} is claimed, and nothing from {written} on is applied");
    plan.relent();
    world.exact((0..3).map(post)).await;
    assert!(running.stop(Duration::from_secs(20)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_an_outage_of_the_store_is_clean_and_loses_nothing() {
    let memory = Memory::new(BEGAN, 2);
    let plan = Plan::default();
    let mut world = World::twin(&memory);
    world.ports.counts = Arc::new(Faulty::new(memory.counts(), plan.clone()));
    let running = world.start("a", brisk());
    world.quiet().await;
    let mut writer = Writer::new(&world, 3).await;
    (0..100_000).for_each(|_| plan.fail_next("apply", Failure::Applied));
    writer.churn(300, 30, 20).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(running.stop(Duration::from_secs(10)).await.exit().is_clean(), "what was not written is dropped");
    plan.relent();
    let again = world.start("b", brisk());
    world.exact((0..30).map(post)).await;
    assert!(again.stop(Duration::from_secs(10)).await.exit().is_clean());
}

/// Nothing is refused and nothing answered: with its repetitions, one call lasts longer than what is left at the last call.
const SILENCE: Fault = Fault::Ghost { max_delay_ms: 60_000, hang_ms: 60_000 };

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_is_silent_is_clean_and_loses_nothing() {
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 8, ..EmulatorConfig::default() }).await;
    let silent = |operation: &&str| Rule::new(SILENCE).on(operation);
    let counts = vec![silent(&"UpdateItem").table("like_counts")];
    let writes = vec![silent(&"UpdateItem")];
    let all = ["UpdateItem", "GetItem", "Scan", "GetRecords", "GetShardIterator", "DescribeStream"];
    let all: Vec<Rule> = all.iter().map(silent).collect();
    for (seed, rules, checkpoints_answer) in [(1, counts, true), (2, writes, false), (3, all, false)] {
        let running = world.start(&format!("until-{seed}"), brisk());
        world.quiet().await;
        let mut writer = Writer::new(&world, seed).await;
        writer.churn(100, 30, 20).await;
        emulator.set_faults(rules.clone());
        writer.churn(200, 30, 20).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let stopped = running.stop(Duration::from_secs(10)).await;
        assert!(stopped.exit().is_clean(), "with {rules:?}: {stopped:?}");
        emulator.set_faults(Vec::new());
        // A silent store may take a lease back all the same, at any time: that is not looked at.
        if checkpoints_answer {
            assert!(loads(&world).await.is_empty(), "what can be given back is, also after the last call");
        }
        let again = world.start(&format!("from-{seed}"), brisk());
        world.exact((0..30).map(post)).await;
        assert!(again.stop(Duration::from_secs(10)).await.exit().is_clean());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_a_loss_cannot_be_recorded_is_clean_and_whoever_is_next_records_it() {
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 1, ..EmulatorConfig::default() }).await;
    let rules = Rules { lease: None, ..brisk() };
    let first = world.start("a", rules);
    let mut writer = Writer::new(&world, 1).await;
    writer.churn(100, 8, 20).await;
    world.exact((0..8).map(post)).await;
    assert!(first.stop(Duration::from_secs(10)).await.exit().is_clean());
    writer.churn(100, 8, 20).await;
    tokio::time::sleep(Duration::from_secs(25 * 3600)).await;
    emulator.trim("likes", None, None).unwrap();
    // The first asks what the deployment was created with.
    emulator.set_faults(vec![Rule::new(SILENCE).on("UpdateItem").calls(2, 1_000)]);
    let second = world.start("b", rules);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stopped = second.stop(Duration::from_secs(10)).await;
    assert!(stopped.exit().is_clean(), "{stopped:?}");
    emulator.set_faults(Vec::new());
    let third = world.start("c", rules);
    eventually("a gap", async || !world.gaps().await.is_empty()).await;
    assert!(third.stop(Duration::from_secs(10)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn an_idle_streamer_makes_a_bounded_number_of_calls() {
    let (world, emulator) = World::emulated(EmulatorConfig { shards: 4, ..EmulatorConfig::default() }).await;
    let running = world.start("a", Rules::default());
    world.quiet().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = emulator.stats().requests;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let after = emulator.stats().requests;
    let a_minute: BTreeMap<&str, u64> = after
        .iter()
        .map(|(name, calls)| (name.as_str(), (calls - before.get(name).copied().unwrap_or(0)) / 2))
        .collect();
    println!("idle, 4 shards, calls a minute: {a_minute:?}");
    // Each second it looks at the format that the deployment is written in, and says how far counts are: two reads and a write.
    let looks = 60 + 3 * 66;
    assert!(a_minute["GetItem"] >= 2 * 55, "{a_minute:?}");
    assert!(a_minute.values().sum::<u64>() - looks <= 530, "{a_minute:?}");
    assert!(a_minute["GetRecords"] <= 4 * 61, "{a_minute:?}");
    assert!(running.stop(Duration::from_secs(10)).await.exit().is_clean());
}
