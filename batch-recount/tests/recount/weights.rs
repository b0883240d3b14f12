//! Counters whose rows weigh what they state: sums of cells, and sets beside the likes of the same post.

use std::time::Duration;

use tally_adapters::memory::Memory;
use tally_core::definitions::{Definitions, Entry};
use tally_core::ids::{CounterId, CounterKind, CounterName, ReservedKey, RowKey};
use tally_core::weight::{Stated, Weight};
use tally_emulator::Config as EmulatorConfig;
use tally_service::Exit;

use crate::world::{BEGAN, World, Writer, client, drift, drifted, ended, eventually, key, post, shards, user};

const PARTITIONS: u32 = 6;

fn views() -> CounterId {
    CounterId { name: CounterName::new("views", CounterKind::Sum).unwrap(), ..post(0) }
}

/// The row key of a partition's cell.
fn key_of(partition: u32) -> RowKey {
    RowKey { counter: views(), shard: shards().shard_of_cell(partition) }
}

/// A partition's cell comes to hold `n`.
fn add_to(memory: &Memory, partition: u32, n: i64) {
    let cell = ReservedKey::Cell { topic: "likes", partition }.to_string();
    let stated = Stated::Amount(Weight::new(n).unwrap());
    memory.likes(shards()).plant_stating(&key_of(partition).to_string(), &cell, stated);
}

#[tokio::test(start_paused = true)]
async fn a_sum_is_repaired_to_its_cells_while_they_grow_and_shrink() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..1, 9).await;
    (0..PARTITIONS).for_each(|partition| add_to(&memory, partition, 1_000 + i64::from(partition)));
    world.quiet().await;
    assert_eq!(world.difference(&views()).await, None);
    for partition in [0, 1] {
        let counter = world.counter(&views()).await;
        memory.counts().plant(&views(), drifted(counter, &key_of(partition), 77));
    }
    let mut recount = std::pin::pin!(ended(world.start("recount", &[])));
    let mut n = 0;
    let exit = loop {
        tokio::select! {
            biased;
            exit = &mut recount => break exit,
            () = tokio::time::sleep(Duration::from_millis(70)) => {
                n += 1;
                add_to(&memory, n % PARTITIONS, 1_000 + i64::from(n) * if n % 3 == 0 { -1 } else { 2 });
            }
        }
    };
    assert_eq!(exit, Exit::CLEAN);
    assert!(n > 50, "{n} changes while the recount ran");
    world.quiet().await;
    assert_eq!((world.difference(&views()).await, world.difference(&post(0)).await), (None, None));
    let summary = world.summary().await;
    assert_eq!((summary.corrected, summary.misplaced_rows), (2, 0), "{summary:?}");
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_weight_cannot_be_read_leaves_its_count_in_doubt_until_it_can() {
    let memory = Memory::new(BEGAN, 1);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    add_to(&memory, 0, 5);
    let pk = key_of(0).to_string();
    for (sort, stated) in [("\u{1}cell/likes/4", Stated::Nothing), ("member", Stated::Unreadable)] {
        memory.likes(shards()).plant_stating(&pk, sort, stated);
    }
    world.quiet().await;
    let counter = world.counter(&views()).await;
    assert_eq!((counter.likes, counter.is_sound()), (5, false));
    assert_eq!(world.recount(&[]).await, Exit::FAILED, "no window proves it");
    assert_eq!(world.summary().await.misplaced_rows, 2);
    assert_eq!(world.counter(&views()).await.likes, 5);
    for (sort, stated) in [("\u{1}cell/likes/4", Stated::number("30")), ("member", Stated::Nothing)] {
        memory.likes(shards()).plant_stating(&pk, sort, stated);
    }
    world.quiet().await;
    assert!(!world.counter(&views()).await.is_sound(), "what they weighed before is still not known");
    assert_eq!(world.recount(&[]).await, Exit::CLEAN);
    let counter = world.counter(&views()).await;
    assert_eq!((counter.likes, counter.is_sound()), (36, true));
}

#[tokio::test(start_paused = true)]
async fn a_row_of_unreadable_weight_whose_change_record_was_lost_leaves_its_count_in_doubt_until_it_can_be_read() {
    let memory = Memory::new(BEGAN, 1);
    let world = World::twin(&memory);
    let streamer = world.streamer("s");
    add_to(&memory, 0, 5);
    world.quiet().await;
    streamer.kill().await;
    // Beside a row that is readable, and alone under its key.
    let (beside, alone) = (key_of(0).to_string(), RowKey::of(&set("retweets"), &user(0), shards()).to_string());
    let state = |stated| {
        for pk in [&beside, &alone] {
            memory.likes(shards()).plant_stating(pk, user(0).as_str(), stated);
        }
    };
    state(Stated::Unreadable);
    memory.streams().trim();
    let _streamer = world.streamer("t");
    eventually("the loss is noticed", async || !world.ports.checkpoints.gaps().await.unwrap().is_empty()).await;
    let sound = async || (world.counter(&views()).await.is_sound(), world.counter(&set("retweets")).await.is_sound());
    _ = world.recount(&["--dry-run"]).await;
    assert_eq!(sound().await, (true, true), "a dry run writes no mark");
    assert_eq!(world.recount(&[]).await, Exit::FAILED, "no window proves them");
    assert_eq!(sound().await, (false, false));
    assert_eq!(world.ports.checkpoints.gaps().await.unwrap().len(), 1);
    state(Stated::Nothing);
    world.quiet().await;
    assert_eq!(world.recount(&[]).await, Exit::CLEAN);
    assert_eq!(world.ports.checkpoints.gaps().await.unwrap(), []);
    let counted = (world.counter(&views()).await.likes, world.counter(&set("retweets")).await.likes);
    assert_eq!((sound().await, counted), ((true, true), (6, 1)));
}

#[tokio::test(start_paused = true)]
async fn counters_of_one_post_are_counted_apart() {
    let memory = Memory::new(BEGAN, 1);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    let retweets = CounterId { name: CounterName::new("retweets", CounterKind::Set).unwrap(), ..post(0) };
    for (counter, members) in [(&retweets, 3), (&post(0), 5)] {
        for member in (0..members).map(user) {
            memory.likes(shards()).plant(&RowKey::of(counter, &member, shards()).to_string(), member.as_str());
        }
    }
    world.quiet().await;
    assert_eq!((world.counter(&retweets).await.likes, world.counter(&post(0)).await.likes), (3, 5));
    assert_eq!(world.recount(&[]).await, Exit::CLEAN);
    assert_eq!((world.difference(&retweets).await, world.difference(&post(0)).await), (None, None));
}

/// Likes, retweets, viewers that no action takes out, replies, tags of a hashtag, and views.
pub(crate) fn defined() -> Definitions {
    let replies = Entry { member: Some("reply_id".to_owned()), ..Entry::set("replies", "reply", Some("unreply")) };
    let followers = Entry {
        subject: Some("hashtag".to_owned()),
        topic: Some("tags".to_owned()),
        ..Entry::set("followers", "follow", Some("unfollow"))
    };
    let sets = [Entry::set("retweets", "retweet", Some("unretweet")), Entry::set("viewers", "saw", None)];
    let views = Entry::sum("views", "view", None);
    Definitions::new(&[&sets[..], &[replies, followers, views]].concat()).unwrap()
}

pub(crate) fn set(name: &str) -> CounterId {
    CounterId { name: CounterName::new(name, CounterKind::Set).unwrap(), ..post(0) }
}

#[tokio::test(start_paused = true)]
async fn a_recount_by_names_looks_at_those_counters_of_the_post_alone() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    world.ports.checkpoints.config(Some(shards())).await.unwrap();
    assert_eq!(world.ports.checkpoints.define(&Definitions::likes_alone(), &defined()).await, Ok(true));
    (0..PARTITIONS).for_each(|partition| add_to(&memory, partition, 40));
    let (likes, retweets) = (post(0), set("retweets"));
    for counter in [&likes, &retweets] {
        for member in (0..7).map(user) {
            memory.likes(shards()).plant(&RowKey::of(counter, &member, shards()).to_string(), member.as_str());
        }
    }
    world.quiet().await;
    let wrong = async || {
        for (counter, key) in
            [(&likes, key(&likes, &user(0))), (&retweets, key(&retweets, &user(0))), (&views(), key_of(1))]
        {
            let stands = world.counter(counter).await;
            memory.counts().plant(counter, drifted(stands, &key, 5));
        }
    };
    let differ = async || {
        let counters = [&likes, &retweets, &views()];
        let mut differ = Vec::new();
        for counter in counters {
            differ.push(world.difference(counter).await.is_some());
        }
        differ
    };
    wrong().await;
    assert_eq!(world.recount(&["--post", "p-0", "--counter", "views"]).await, Exit::CLEAN);
    assert_eq!((differ().await, world.summary().await.posts), (vec![true, true, false], 1));
    let names = ["--post", "p-0", "--counter", "retweets", "--counter", "likes"];
    assert_eq!(world.recount(&names).await, Exit::CLEAN);
    assert_eq!((differ().await, world.summary().await.posts), (vec![false; 3], 2));
    wrong().await;
    assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::CLEAN);
    assert_eq!((differ().await, world.summary().await.corrected), (vec![false; 3], 3), "all, where none is named");
    let end = world.start("recount", &["--post", "p-0", "--counter", "nope"]).ended().await;
    assert!(end.to_string().ends_with("there is no counter nope"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn a_sum_that_stands_beyond_64_bits_is_in_doubt_and_comes_back_by_a_recount() {
    let (world, emulator) = World::emulated(EmulatorConfig::default()).await;
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..1, 12).await;
    world.quiet().await;
    let key = key(&post(0), &user(0));
    drift(&client(&emulator), &key, i64::MAX).await;
    let beyond = world.counter(&post(0)).await;
    assert_eq!((beyond.likes, beyond.shards[&key.shard].rows), (i64::MAX, i64::MAX));
    assert!(beyond.shards[&key.shard].suspect && !beyond.is_sound());
    // It comes back by what 64 bits hold at once, which the window after it takes for a loss, and says so.
    assert_eq!(world.recount(&["--force"]).await, Exit::FAILED);
    assert_eq!(world.summary().await.alarms, 1);
    assert_eq!(world.recount(&["--force"]).await, Exit::CLEAN);
    assert_eq!(world.difference(&post(0)).await, None);
}
