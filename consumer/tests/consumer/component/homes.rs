//! Sets whose homes grow while they are written, through the runner: lanes look for members side by side, and heat spreads rows.

use std::time::Duration;

use tally_core::consume::LanePolicy;
use tally_core::event::Action::{Like, Unlike};
use tally_core::fence::{Commit, Partition, Refused};
use tally_core::homes::{CounterMap, DecidedBy};
use tally_core::ids::{CounterId, LaneCount, PostId, RowKey, ShardCount};
use tally_core::ports::{CounterMaps as _, FencedRows as _, Rows as _, Segment};
use tally_core::time::UnixMillis;

use super::common::{Answer, TOPIC, World, eventually, stop};

fn count(n: u64) -> ShardCount {
    ShardCount::new(n).unwrap()
}

fn likes() -> CounterId {
    CounterId::likes(PostId::new("p-0").unwrap())
}

/// From now on rows are put under `to` shards.
async fn spread(world: &World, to: u64, at: u64) {
    let maps = world.memory.maps();
    let standing = maps.map(&likes()).await.unwrap();
    let map = CounterMap::spread(standing.as_ref(), ShardCount::DEFAULT, count(to), UnixMillis(at));
    maps.announce().await.unwrap();
    assert_eq!(maps.put_map(&likes(), standing.as_ref(), &map).await, Ok(true));
    maps.announce().await.unwrap();
}

async fn all_reach(world: &World, offset: u64) {
    let partition = Partition { topic: TOPIC.into(), index: 0 };
    eventually(&format!("every lane at {offset}"), async || {
        let fences = world.table.lanes(&partition).await.unwrap();
        fences.is_some_and(|fences| fences.least().offset.0 == offset)
    })
    .await;
}

/// The greatest shard that has a row.
async fn greatest_shard(world: &World) -> u16 {
    let (mut greatest, mut after) = (0, None);
    loop {
        let page = world.memory.rows().scan(Segment { index: 0, of: 1 }, after.as_ref()).await.unwrap();
        let shards = page.items.iter().map(|row| row.pk.parse::<RowKey>().unwrap().shard.index());
        greatest = shards.fold(greatest, u16::max);
        after = page.next;
        if after.is_none() {
            return greatest;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rows_equal_the_fold_while_homes_come_and_go_and_lanes_look_side_by_side() {
    let mut world = World::new(1);
    world.settings.lanes = LanePolicy::Pinned(LaneCount::new(4).unwrap());
    let mut consumer = world.consumer();
    for (round, to) in [64, 32, 128, 16, 64].into_iter().enumerate() {
        if round % 2 == 0 {
            spread(&world, to, round as u64).await;
            // Until the change is seen.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        for n in 0..900 {
            world.say(0, &format!("user-{}", (n * 7 + round * 131) % 997), if n % 10 < 3 { Unlike } else { Like });
        }
        if round % 2 == 1 {
            spread(&world, to, round as u64).await;
            consumer.kill().await;
            consumer = world.consumer();
        }
        all_reach(&world, 900 * (round as u64 + 1)).await;
        assert_eq!(world.rows().await, *world.expected(), "round {round}");
    }
    assert!(greatest_shard(&world).await >= 64, "some rows are under 128 shards");
    stop(consumer).await;
}

/// Row keys that are refused spread the post, and what is said afterwards is put there.
#[tokio::test(start_paused = true)]
async fn a_post_whose_row_keys_are_refused_is_spread() {
    let mut world = World::new(1);
    world.settings.lanes = LanePolicy::Pinned(LaneCount::ONE);
    let mut refused = None;
    world.table.script(move |asked| {
        // Each transaction is refused once.
        let extent = Some((asked.from, asked.to));
        if refused == extent {
            return Answer::Truth;
        }
        refused = extent;
        let rows = asked.users.iter().map(|_| Refused::Throttled);
        Answer::Say(Commit::Cancelled([Refused::Nothing].into_iter().chain(rows).collect()))
    });
    let consumer = world.consumer();
    let mut said = 0;
    let maps = world.memory.maps();
    while maps.map(&likes()).await.unwrap().is_none() {
        assert!(said < 1_000_000, "it was never spread");
        for _ in 0..2_000 {
            world.say(0, &format!("user-{}", said * 7 % 5_003), Like);
            said += 1;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let map = maps.map(&likes()).await.unwrap().unwrap();
    assert_eq!(map.decided_by, DecidedBy::Heat);
    assert!(map.newest() > ShardCount::DEFAULT && map.homes().contains(ShardCount::DEFAULT), "{map:?}");
    all_reach(&world, said).await;
    for n in 0..500 {
        world.say(0, &format!("late-{n}"), Like);
    }
    all_reach(&world, said + 500).await;
    assert_eq!(world.rows().await, *world.expected());
    assert!(greatest_shard(&world).await >= 16);
    stop(consumer).await;
}
