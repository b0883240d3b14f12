//! The whole consumer over in-memory twins under paused time: every branch of the chain, one law each.

mod common;
mod counters;
mod group;
mod homes;
mod lanes;
mod letters;
mod log;
mod partition;
mod pausing;
mod store;

use self::common::{World, stop};
use tally_core::event::Action::{Like, Unlike};

#[tokio::test(start_paused = true)]
async fn rows_equal_the_fold_and_dead_letters_the_poison() {
    let mut world = World::new(12);
    let mut poison = Vec::new();
    for n in 0..2400u32 {
        let partition = n % 12;
        if n % 100 == 7 {
            poison.push((partition, world.put(partition, b"k", Some(b"{")).0, "not_json".to_owned()));
        } else {
            let user = format!("u#{}-\u{1f44d}", n % 701);
            world.say(partition, &user, if n % 10 < 3 { Unlike } else { Like });
        }
    }
    let consumer = world.consumer();
    for partition in 0..12 {
        world.reaches(partition, 200).await;
    }
    assert_eq!(world.rows().await, *world.expected());
    let mut letters = world.letters().await;
    letters.sort();
    poison.sort();
    assert_eq!(letters, poison);
    assert!(consumer.host().readiness().report().ready);
    stop(consumer).await;
}
