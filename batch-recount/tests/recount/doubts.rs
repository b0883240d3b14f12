//! What a recount does where it cannot be sure: clocks that disagree, counters that cannot be read, row keys that are
//! too large, too many or not there at all.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_adapters::memory::Memory;
use tally_core::audit::Cause;
use tally_core::counter::Counter;
use tally_core::event::Action;
use tally_core::ids::RowKey;
use tally_core::ports::QueueReason;
use tally_emulator::Config;
use tally_service::{Clock, Exit};
use tokio::time::Instant;

use crate::world::{BEGAN, World, Writer, client, drifted, ended, key, post, shards, user};

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_behind_the_streamers_proves_nothing_too_soon() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let streamer = world.streamer("s");
    let mut writer = Writer::new(&world, 1).await;
    writer.fill(0..1, 9).await;
    world.quiet().await;
    streamer.kill().await;
    // A count that is one short, and an unlike on its way that makes it look right.
    let first = key(&post(0), &user(0));
    memory.counts().plant(&post(0), drifted(world.counter(&post(0)).await, &first, -1));
    writer.write(&[(post(0), user(0), Action::Unlike)]).await;
    let behind = World { clock: Clock::starting_at(BEGAN.minus(Duration::from_secs(3600))), ..world.clone() };
    let recount = behind.start("behind", &[]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let _streamer = world.streamer("t");
    assert_eq!(ended(recount).await, Exit::CLEAN);
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_cannot_be_read_is_left_and_everything_else_is_repaired() {
    let (world, emulator) = World::emulated(Config { shards: 2, ..Config::default() }).await;
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..8, 9).await;
    world.quiet().await;
    let client = client(&emulator);
    for (post, attribute, value) in
        [("p-3", "s1", AttributeValue::S("many".into())), ("p-5", "likes", AttributeValue::N("7".into()))]
    {
        let update = client.update_item().table_name("like_counts").key("post_id", AttributeValue::S(post.into()));
        let update = update.update_expression("SET #a=:v").expression_attribute_names("#a", attribute);
        update.expression_attribute_values(":v", value).send().await.unwrap();
    }
    for post in ["p-3", "p-5"] {
        let key: RowKey = format!("{post}#1").parse().unwrap();
        world.ports.recounts.enqueue(&key, QueueReason::Drift, BEGAN).await.unwrap();
    }
    assert_eq!(world.recount(&["--candidates-only"]).await, Exit::FAILED, "one of the two is left");
    assert_eq!(world.recount(&[]).await, Exit::FAILED);
    assert!(world.summary().await.left >= 1);
    for n in (0..8).filter(|n| *n != 3) {
        assert_eq!(world.difference(&post(n)).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn row_keys_in_doubt_wait_for_the_streamer_together() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..60, 9).await;
    world.quiet().await;
    let began = Instant::now();
    let recount = world.start_with("r", &["--since", "1h"], |rules| rules.concurrency = 2);
    assert_eq!(ended(recount).await, Exit::CLEAN);
    assert_eq!(world.summary().await.proved, 60 * 4);
    assert!(began.elapsed() < Duration::from_secs(40), "240 row keys took {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_row_key_that_outgrows_the_room_it_was_given_is_recounted_with_more() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..3, 300).await;
    world.quiet().await;
    // The counters don't say how large they are.
    for n in 0..3 {
        let counter = world.counter(&post(n)).await;
        memory.counts().plant(&post(n), Counter { shards: [].into(), likes: 0, ..counter });
    }
    let recount = world.start_with("r", &[], |rules| rules.held = 100);
    assert_eq!(ended(recount).await, Exit::CLEAN);
    let summary = world.summary().await;
    assert!(summary.windows_repeated > 0, "{summary:?}");
    world.exact(3).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_and_never_was_is_made_no_counter_of() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..1, 9).await;
    world.quiet().await;
    for n in [0, 77] {
        for shard in shards().all() {
            let key = RowKey { counter: post(n), shard };
            world.ports.recounts.enqueue(&key, QueueReason::Asked, BEGAN).await.unwrap();
        }
    }
    assert_eq!(world.recount(&["--candidates-only"]).await, Exit::CLEAN);
    assert_eq!(world.ports.counts.counter(&post(77)).await.unwrap(), None);
    assert_eq!(world.summary().await.windows, 4, "of the post that is there");
    assert_eq!(world.ports.recounts.queued(None).await.unwrap().items, []);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_of_the_queue_compares_and_leaves_everything_as_it_is() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..2, 9).await;
    world.quiet().await;
    let keys = [0, 1].map(|n| key(&post(n), &user(0)));
    memory.counts().plant(&post(0), drifted(world.counter(&post(0)).await, &keys[0], 3));
    let before = world.counter(&post(0)).await;
    for key in &keys {
        world.ports.recounts.enqueue(key, QueueReason::Asked, BEGAN).await.unwrap();
    }
    assert_eq!(world.recount(&["--candidates-only", "--dry-run"]).await, Exit::FAILED);
    assert_eq!(world.summary().await.drift, [(Cause::Drift, 1)].into());
    assert_eq!(world.counter(&post(0)).await, before);
    assert_eq!(world.ports.recounts.queued(None).await.unwrap().items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_recount_waits_for_the_deployment_and_decides_nothing_about_it() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let recount = world.start("early", &["--dry-run"]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.ports.checkpoints.deployed().await.unwrap(), None);
    let _streamer = world.streamer("s");
    assert_eq!(ended(recount).await, Exit::CLEAN);
}
