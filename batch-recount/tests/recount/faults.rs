//! Recounts that are killed, that meet each other, whose streamer dies and whose calls fail: never a wrong verdict, and
//! always one in the end.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::faulty::{Faulty, Plan};
use tally_adapters::memory::Memory;
use tally_core::ids::RowKey;
use tally_emulator::{Config, Fault, Rule};
use tally_service::{Chance, Clock, Exit};

use crate::world::{BEGAN, World, Writer, client, drifted, ended, key, post, user};

/// How far the count of `key` is from its rows, once all is applied.
async fn drift(world: &World, key: &RowKey) -> i64 {
    world.quiet().await;
    let counter = world.counter(&key.counter).await;
    counter.shards.get(&key.shard).map_or(0, |tally| tally.rows) - world.rows(key).await
}

/// What goes wrong with requests of the recount and of the streamer: writers' transactions are spared.
fn ghosts() -> Vec<Rule> {
    let late = || Rule::new(Fault::Ghost { max_delay_ms: 20_000, hang_ms: 0 });
    vec![
        late().on("PutItem").table("likes").chance(0.25),
        Rule::new(Fault::DropReply).on("PutItem").table("likes").chance(0.15),
        late().on("PutItem").table("recounts").chance(0.05),
        late().on("UpdateItem").table("like_counts").chance(0.02),
        late().on("TransactWriteItems").table("recounts").chance(0.2),
        Rule::new(Fault::DropReply).on("TransactWriteItems").table("recounts").chance(0.2),
        Rule::new(Fault::Conflict).on("TransactWriteItems").table("recounts").chance(0.1),
    ]
}

async fn drifting(memory: &Memory, world: &World, by: i64) -> RowKey {
    Writer::new(world, 1).await.fill(0..1, 12).await;
    world.quiet().await;
    let key = key(&post(0), &user(0));
    memory.counts().plant(&post(0), drifted(world.counter(&post(0)).await, &key, by));
    key
}

#[tokio::test(start_paused = true)]
async fn a_recount_killed_anywhere_leaves_the_drift_as_it_was_or_none() {
    for seed in 0..50 {
        let (memory, chance) = (Memory::new(BEGAN, 2), Chance::seeded(seed));
        let world = World::twin(&memory);
        let _streamer = world.streamer("s");
        let key = drifting(&memory, &world, 5).await;
        let mut writer = Writer::new(&world, 2).await;
        let recount = world.start("killed", &["--post", "p-0"]);
        tokio::time::sleep(chance.up_to(Duration::from_secs(8))).await;
        writer.churn(&post(0), 4, 20).await;
        tokio::time::sleep(chance.up_to(Duration::from_secs(8))).await;
        recount.kill().await;
        let left = drift(&world, &key).await;
        assert!(left == 5 || left == 0, "seed {seed}: {left}");
        assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::CLEAN, "seed {seed}");
        world.exact(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_recounts_at_once_correct_once_also_where_claims_do_not_keep_them_apart() {
    for ahead in [Duration::ZERO, Duration::from_secs(3600)] {
        let memory = Memory::new(BEGAN, 2);
        let world = World::twin(&memory);
        let _streamer = world.streamer("s");
        drifting(&memory, &world, -4).await;
        // To a clock that is ahead every other process's claim looks stale: they meet in the markers.
        let other = World { clock: Clock::starting_at(world.clock.now().plus(ahead)), ..world.clone() };
        let start = |world: &World, name: &str| world.start_with(name, &["--post", "p-0"], |rules| rules.windows = 200);
        let one = start(&world, "one");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let two = start(&other, "two");
        assert_eq!((ended(one).await, ended(two).await), (Exit::CLEAN, Exit::CLEAN), "{ahead:?}");
        let ledger = world.ports.recounts.ledger(&post(0), 100).await.unwrap();
        let corrections = ledger.iter().filter(|line| line.before != line.after);
        assert_eq!(corrections.map(|line| line.after - line.before).collect::<Vec<_>>(), [4], "{ahead:?}");
        world.exact(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamer_that_dies_inside_windows_costs_repeats_and_no_truth() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let mut streamer = world.streamer("s");
    drifting(&memory, &world, 7).await;
    let mut writer = Writer::new(&world, 2).await;
    let recount = world.start("r", &["--post", "p-0"]);
    for n in 0..4 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        writer.churn(&post(0), 10, 20).await;
        streamer.kill().await;
        writer.churn(&post(0), 10, 20).await;
        streamer = world.streamer(&format!("s{n}"));
    }
    assert_eq!(ended(recount).await, Exit::CLEAN);
    world.exact(1).await;
    drop(streamer);
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_every_way_there_is_delay_a_recount_and_never_mislead_it() {
    for seed in 0..12 {
        let memory = Memory::new(BEGAN, 2);
        let world = World::twin(&memory);
        let _streamer = world.streamer("s");
        let key = drifting(&memory, &world, 3).await;
        let plan = Plan::seeded(seed, 12);
        let faulty = world.with(|ports| {
            ports.rows = Arc::new(Faulty::new(memory.rows(), plan.clone()));
            ports.markers = Arc::new(Faulty::new(memory.markers(), plan.clone()));
            ports.counts = Arc::new(Faulty::new(memory.counts(), plan.clone()));
            ports.recounts = Arc::new(Faulty::new(memory.recounts(), plan.clone()));
            ports.checkpoints = Arc::new(Faulty::new(memory.checkpoints(), plan.clone()));
        });
        let mut writer = Writer::new(&world, 2).await;
        let recount = faulty.start("f", &[]);
        tokio::time::sleep(Duration::from_secs(5)).await;
        writer.churn(&post(0), 10, 20).await;
        ended(recount).await;
        let left = drift(&world, &key).await;
        assert!(left == 3 || left == 0, "seed {seed}: {left}");
        assert!(plan.fired() > 0);
        assert_eq!(world.recount(&[]).await, Exit::CLEAN, "seed {seed}");
        world.exact(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn markers_and_verdicts_that_arrive_late_never_mislead_a_recount() {
    let mut late = 0;
    for seed in 0..3 {
        let (world, emulator) = World::emulated(Config { shards: 2, seed, ..Config::default() }).await;
        let _streamer = world.streamer("s");
        let mut writer = Writer::new(&world, seed).await;
        writer.fill(0..2, 12).await;
        world.quiet().await;
        let keys = [0, 1].map(|n| key(&post(n), &user(0)));
        for key in &keys {
            crate::world::drift(&client(&emulator), key, 5).await;
        }
        emulator.set_faults(ghosts());
        let haunted = world.start("haunted", &[]);
        let mut recount = std::pin::pin!(haunted.ended());
        loop {
            tokio::select! {
                _ = &mut recount => break,
                () = tokio::time::sleep(Duration::from_millis(300)) => writer.churn(&post(0), 2, 20).await,
            }
        }
        late += emulator.stats().fired("ghost");
        emulator.set_faults(Vec::new());
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(emulator.stats().ghosts_pending, 0);
        for key in &keys {
            let ledger = world.ports.recounts.ledger(&key.counter, 1_000).await.unwrap();
            let corrections = ledger.iter().map(|line| line.after - line.before).filter(|by| *by != 0);
            let corrections: Vec<i64> = corrections.collect();
            assert!(corrections.is_empty() || corrections == [-5], "seed {seed}: {corrections:?}");
        }
        assert_eq!(world.recount(&[]).await, Exit::CLEAN, "seed {seed}");
        world.exact(2).await;
    }
    assert!(late > 10, "{late} requests were late");
}

#[tokio::test(start_paused = true)]
async fn an_audit_killed_anywhere_is_finished_by_the_next() {
    for seed in 0..20 {
        let (memory, chance) = (Memory::new(BEGAN, 2), Chance::seeded(seed));
        let world = World::twin(&memory);
        let _streamer = world.streamer("s");
        drifting(&memory, &world, 5).await;
        let audit = world.start("killed", &[]);
        tokio::time::sleep(chance.up_to(Duration::from_secs(25))).await;
        audit.kill().await;
        let run = world.ports.recounts.runs(1).await.unwrap().remove(0);
        let name = run.run.to_string();
        let line: &[&str] = if run.ended.is_some() { &[] } else { &["--resume", &name] };
        assert_eq!(world.recount(line).await, Exit::CLEAN, "seed {seed}");
        world.exact(1).await;
        let ledger = world.ports.recounts.ledger(&post(0), 100).await.unwrap();
        let corrections: Vec<i64> = ledger.iter().map(|line| line.after - line.before).filter(|by| *by != 0).collect();
        assert_eq!(corrections, [-5], "seed {seed}");
    }
}
