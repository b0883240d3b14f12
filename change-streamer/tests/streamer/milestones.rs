//! Milestones as a streamer records them: who was first, what a correction crosses, and what a process without a ladder
//! does.

use std::time::Duration;

use tally_adapters::memory::Memory;
use tally_change_streamer::Rules;
use tally_core::counter::Update;
use tally_core::ids::{CounterId, Ordinal, RowKey};
use tally_core::milestone::{Bound, Guard, Milestone};
use tally_core::ports::{Applied, Judged, LedgerEntry};
use tally_core::time::UnixMillis;
use tally_core::window::{Form, Marker, Verdict, WindowRun};
use tally_emulator::Config as EmulatorConfig;

use crate::world::{BEGAN, World, Writer, brisk, eventually, key, post, user};

const GRACE: Duration = Duration::from_secs(20);

fn on_ladder(ladder: &str) -> Rules {
    Rules { milestones: ladder.parse().unwrap(), ..brisk() }
}

async fn milestones(world: &World, post: &CounterId) -> Vec<Milestone> {
    let recorded = world.ports.recounts.milestones(post, 99).await.unwrap();
    for recorded in &recorded {
        assert_eq!(recorded.digest, recorded.milestone.digest(post));
    }
    recorded.into_iter().rev().map(|recorded| recorded.milestone).collect()
}

fn told(milestones: &[Milestone]) -> Vec<(i64, String)> {
    milestones.iter().map(|milestone| (milestone.n, milestone.by.to_string().replace("member\n", ""))).collect()
}

/// Likes one after another, each applied before the next: the order is known.
async fn like_in_order(world: &World, writer: &mut Writer, users: std::ops::Range<u64>) {
    for n in users {
        let likes = world.counter(&post(1)).await.likes;
        writer.like(&post(1), &user(n)).await;
        eventually("it is counted", async || world.counter(&post(1)).await.likes == likes + 1).await;
    }
}

async fn the_first_to_reach_a_threshold_is_recorded_once(world: World) {
    let mut writer = Writer::new(&world, 1).await;
    let running = [world.start("a", on_ladder("2,4,100")), world.start("b", on_ladder("2,4,100"))];
    like_in_order(&world, &mut writer, 1..5).await;
    for n in 1..5 {
        writer.unlike(&post(1), &user(n)).await;
    }
    world.exact([post(1)]).await;
    like_in_order(&world, &mut writer, 5..10).await;
    world.exact([post(1)]).await;
    let recorded = milestones(&world, &post(1)).await;
    assert_eq!(told(&recorded), [(2, "u-2".to_owned()), (4, "u-4".to_owned())]);
    assert_eq!(recorded.iter().map(|milestone| milestone.version).collect::<Vec<_>>(), [2, 4]);
    assert!(recorded.iter().all(|milestone| milestone.exact));
    for running in running {
        assert!(running.stop(GRACE).await.exit().is_clean());
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_to_reach_a_threshold_is_recorded_once_over_the_twins() {
    the_first_to_reach_a_threshold_is_recorded_once(World::twin(&Memory::new(BEGAN, 2))).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_to_reach_a_threshold_is_recorded_once_over_an_emulator() {
    let (world, _emulator) = World::emulated(EmulatorConfig { shards: 2, ..EmulatorConfig::default() }).await;
    the_first_to_reach_a_threshold_is_recorded_once(world).await;
}

/// Adds to a counter as a verdict does.
async fn correct(world: &World, key: &RowKey, run: u128, correction: i64) {
    let run = WindowRun::from(run);
    for marker in [Marker::low(run), Marker::high(run)] {
        let standing = world.markers.marker(key).await.unwrap();
        world.markers.put_marker(key, marker, standing).await.unwrap();
    }
    let token = async || {
        let counter = world.counter(&key.counter).await;
        counter.shards.get(&key.shard).and_then(|tally| tally.window).is_some_and(|window| window.run == run)
    };
    eventually("the token stands", token).await;
    let verdict = Verdict { key: key.clone(), run, correction, form: Form::Plain };
    let entry = LedgerEntry {
        counter: key.counter.clone(),
        shard: Some(key.shard),
        at: UnixMillis(1),
        run,
        by: "test".to_owned(),
        before: 0,
        after: correction,
        why: "test".to_owned(),
    };
    let judged = world.ports.counts.judge(&verdict, &entry).await;
    assert_eq!(judged, Ok(Judged::Stands));
}

#[tokio::test(start_paused = true)]
async fn what_a_correction_crosses_has_no_winner_then_or_after_a_dip() {
    let world = World::twin(&Memory::new(BEGAN, 2));
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", on_ladder("5,9"));
    like_in_order(&world, &mut writer, 1..4).await;
    correct(&world, &key(&post(1), &user(1)), 7, 3).await;
    assert_eq!(world.counter(&post(1)).await.likes, 6);
    // The first update behind the correction only falls.
    writer.unlike(&post(1), &user(1)).await;
    writer.unlike(&post(1), &user(2)).await;
    eventually("they are counted", async || world.counter(&post(1)).await.likes == 4).await;
    like_in_order(&world, &mut writer, 10..15).await;
    let recorded = milestones(&world, &post(1)).await;
    assert_eq!(told(&recorded), [(5, "unwitnessed".to_owned()), (9, "u-14".to_owned())]);
    assert!(running.stop(GRACE).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_told_no_ladder_takes_the_deployments_and_learns_of_a_longer_one_from_a_counter() {
    let world = World::twin(&Memory::new(BEGAN, 1));
    let mut writer = Writer::new(&world, 1).await;
    let first = world.start("a", on_ladder("2"));
    like_in_order(&world, &mut writer, 1..3).await;
    assert!(first.stop(GRACE).await.exit().is_clean());
    let heir = world.start("b", brisk());
    like_in_order(&world, &mut writer, 3..4).await;
    // Another streamer, which knows a longer ladder, touches the counter.
    let deployment = &world.ports.checkpoints;
    let stands = deployment.ladder().await.unwrap();
    assert!(deployment.raise_ladder(&stands, &"2,5".parse().unwrap()).await.unwrap());
    let touches = Update {
        shard: Ordinal(99),
        first: 1.into(),
        last: 1.into(),
        at: UnixMillis(1),
        touched: vec![],
        ancestors: vec![],
        closed_through: None,
        prune: None,
        guard: Some(Guard { knows: 2, bound: Bound::Free }),
    };
    let touched = world.ports.counts.apply(&post(1), &touches).await.unwrap();
    assert!(matches!(touched, Applied::Taken(counter) if counter.ladder == 2));
    like_in_order(&world, &mut writer, 4..8).await;
    assert_eq!(told(&milestones(&world, &post(1)).await), [(2, "u-2".to_owned()), (5, "u-5".to_owned())]);
    assert!(heir.stop(GRACE).await.exit().is_clean());
}
