//! Seeded schedules over the twins: every port fails in every way, shards close, workers come, go and run double.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::faulty::{Faulty, Plan};
use tally_adapters::memory::Memory;
use tally_change_streamer::Rules;
use tally_service::Running;

use crate::world::{BEGAN, World, Writer, brisk, post};

/// A world whose every port fails once in `one_in` calls; rows are written undisturbed.
fn faulty(memory: &Memory, plan: &Plan) -> World {
    let mut world = World::twin(memory);
    world.ports.stream = Arc::new(Faulty::new(memory.streams(), plan.clone()));
    world.ports.counts = Arc::new(Faulty::new(memory.counts(), plan.clone()));
    world.ports.checkpoints = Arc::new(Faulty::new(memory.checkpoints(), plan.clone()));
    world.ports.recounts = Arc::new(Faulty::new(memory.recounts(), plan.clone()));
    world
}

async fn schedule(seed: u64, rules: Rules) {
    let memory = Memory::new(BEGAN, 3);
    let plan = Plan::seeded(seed, 12);
    let world = faulty(&memory, &plan);
    let (calm, streams) = (World::twin(&memory), memory.streams());
    let mut writer = Writer::new(&calm, seed).await;
    let mut running: Vec<Running> = vec![world.start("a", rules)];
    let mut started = 1;
    for _ in 0..30 {
        writer.churn(40, 12, 9).await;
        match writer.chance.token() % 8 {
            0 | 1 => {
                let open: Vec<_> = calm.states().await.into_iter().filter(|state| !state.checkpoint.closed).collect();
                if let Some(state) = open.get(usize::try_from(writer.chance.token() % 3).unwrap()) {
                    streams.close(&state.checkpoint.id, u32::try_from(1 + writer.chance.token() % 2).unwrap());
                }
            }
            2 if running.len() > 1 => running.swap_remove(0).kill().await,
            3 if running.len() > 1 => _ = running.swap_remove(0).stop(Duration::from_secs(20)).await,
            2..=4 if running.len() < 3 => {
                started += 1;
                running.push(world.start(&format!("w{started}"), rules));
            }
            _ => tokio::time::sleep(writer.chance.up_to(Duration::from_secs(4))).await,
        }
    }
    plan.relent();
    calm.exact((0..12).map(post)).await;
    assert!(plan.fired() > 5, "only {} faults", plan.fired());
    assert!(calm.gaps().await.is_empty(), "nothing was lost: {:?}", calm.gaps().await);
    for (nth, running) in running.into_iter().enumerate() {
        assert!(running.stop(Duration::from_secs(20)).await.exit().is_clean(), "streamer {nth} of seed {seed}");
    }
}

pub(crate) fn seeds() -> u64 {
    std::env::var("TALLY_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(24)
}

#[tokio::test(start_paused = true)]
async fn counts_equal_rows_after_any_schedule_of_faults_closings_and_workers() {
    for seed in 0..seeds() {
        schedule(seed, brisk()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn counts_equal_rows_when_every_worker_reads_every_shard() {
    for seed in 0..seeds() {
        schedule(1_000 + seed, Rules { lease: None, ..brisk() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn small_prefixes_and_one_update_at_a_time_come_to_the_same() {
    for seed in 0..seeds() / 4 {
        let mut rules = Rules { concurrency: 1, ..brisk() };
        rules.cut.records = 2;
        schedule(2_000 + seed, rules).await;
    }
}
