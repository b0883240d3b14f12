//! A partition with several lanes, through the runner: transactions side by side, changes of their number, and what follows
//! where answers are lost and consumers die meanwhile.

use std::time::Duration;

use tally_core::consume::LanePolicy;
use tally_core::event::Action::{Like, Unlike};
use tally_core::fence::{Commit, Fences, Partition, Refused};
use tally_core::ids::LaneCount;
use tally_core::ports::FencedRows;

use super::common::{Answer, TOPIC, World, eventually, stop};

fn pinned(lanes: u64) -> LanePolicy {
    LanePolicy::Pinned(LaneCount::new(lanes).unwrap())
}

async fn fences(world: &World) -> Option<Fences> {
    world.table.lanes(&Partition { topic: TOPIC.into(), index: 0 }).await.unwrap()
}

/// Waits until every lane of so many has come to `offset`.
async fn all_reach(world: &World, lanes: usize, offset: u64) {
    eventually(&format!("{lanes} lanes at {offset}"), async || {
        let fences = fences(world).await;
        fences.is_some_and(|fences| fences.lanes().get() == lanes && fences.least().offset.0 == offset)
    })
    .await;
}

fn say(world: &mut World, events: std::ops::Range<u32>) {
    for n in events {
        let action = if n % 10 < 3 { Unlike } else { Like };
        world.say(0, &format!("user-{}", n % 397), action);
    }
}

#[tokio::test(start_paused = true)]
async fn rows_equal_the_fold_whatever_the_number_of_lanes_and_while_it_changes() {
    let mut world = World::new(1);
    let mut said = 0;
    for lanes in [1, 4, 2, 16, 1] {
        say(&mut world, said..said + 700);
        said += 700;
        world.settings.lanes = pinned(lanes);
        let consumer = world.consumer();
        all_reach(&world, usize::try_from(lanes).unwrap(), u64::from(said)).await;
        assert_eq!(world.rows().await, *world.expected(), "{lanes} lanes");
        stop(consumer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rows_equal_the_fold_where_answers_of_lanes_are_lost_refused_and_late() {
    let mut world = World::new(1);
    world.settings.lanes = pinned(4);
    say(&mut world, 0..2_000);
    let mut nth = 0;
    world.table.script(move |_| {
        nth += 1;
        match nth % 7 {
            1 => Answer::DoAndSay(Commit::Unknown("no answer".to_owned())),
            3 => Answer::Say(Commit::Unknown("no answer".to_owned())),
            5 => Answer::Say(Commit::Cancelled(vec![Refused::Conflict])),
            _ => Answer::Truth,
        }
    });
    let consumer = world.consumer();
    all_reach(&world, 4, 2_000).await;
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_dies_between_its_lanes_leaves_nothing_out() {
    let mut world = World::new(1);
    for (round, lanes) in [4, 8, 2, 4, 1].into_iter().enumerate() {
        let round = u32::try_from(round).unwrap();
        say(&mut world, round * 900..(round + 1) * 900);
        world.settings.lanes = pinned(lanes);
        let asked = world.table.asked().len();
        let consumer = world.consumer();
        eventually("some transactions", async || world.table.asked().len() > asked + 5).await;
        consumer.kill().await;
    }
    world.settings.lanes = pinned(2);
    let consumer = world.consumer();
    all_reach(&world, 2, 4_500).await;
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn lanes_follow_the_load_up_and_down() {
    let mut world = World::new(1);
    world.settings.lanes = LanePolicy::Adaptive;
    for n in 0..8_000 {
        world.say(0, &format!("user-{n}"), Like);
    }
    let consumer = world.consumer();
    eventually("more lanes", async || fences(&world).await.is_some_and(|fences| fences.lanes() > LaneCount::ONE)).await;
    eventually("all is written", async || fences(&world).await.is_some_and(|fences| fences.least().offset.0 == 8_000))
        .await;
    assert_eq!(world.rows().await, *world.expected());
    tokio::time::sleep(Duration::from_secs(300)).await;
    all_reach(&world, 1, 8_000).await;
    stop(consumer).await;
}
