//! Everything together, over the emulator through the real SDK: splitting shards, faults, several workers. The size is
//! one for every change; `TALLY_TEST_CHANGES=300000 TALLY_TEST_POSTS=20000` is the whole of it (build with
//! `--release`).

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_change_streamer::Rules;
use tally_core::event::Action;
use tally_emulator::{Config as EmulatorConfig, Emulator, Fault, Rule};
use tally_service::Running;

use crate::world::{World, Writer, brisk, post, sdk, user};

fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|size| size.parse().ok()).unwrap_or(default)
}

/// What goes wrong: once in some calls of everything the streamer does. Rows are written in transactions, undisturbed.
fn faults() -> Vec<Rule> {
    let mut rules = Vec::new();
    for operation in ["UpdateItem", "GetItem", "Scan", "GetRecords", "GetShardIterator", "DescribeStream"] {
        rules.push(Rule::new(Fault::Throttle).on(operation).chance(0.02));
        rules.push(Rule::new(Fault::DropReply).on(operation).chance(0.01));
        rules.push(Rule::new(Fault::InternalError { applied: None }).on(operation).chance(0.01));
    }
    rules.push(Rule::new(Fault::Ghost { max_delay_ms: 60_000, hang_ms: 0 }).on("UpdateItem").chance(0.01));
    rules.push(Rule::new(Fault::Conflict).on("UpdateItem").chance(0.02));
    rules.push(Rule::new(Fault::Latency { min_ms: 1, max_ms: 200 }).on("UpdateItem").chance(0.05));
    rules
}

/// 8 shards that split now and then, and faults.
async fn stormy(seed: u64) -> (World, Emulator) {
    let config = EmulatorConfig {
        seed,
        shards: 8,
        split_after: Some(700),
        max_open_shards: 16,
        roll_after: Some(Duration::from_secs(300)),
        ..EmulatorConfig::default()
    };
    let (world, emulator) = World::emulated(config).await;
    emulator.set_faults(faults());
    (world, emulator)
}

/// Writes the load while `between` does what it does now and then.
async fn load(world: &World, seed: u64, mut between: impl AsyncFnMut(&mut Writer, u64)) -> u64 {
    let (changes, posts) = (size("TALLY_TEST_CHANGES", 6_000), size("TALLY_TEST_POSTS", 400));
    let mut writer = Writer::new(world, seed).await;
    let chunk = 300;
    for nth in 0..changes / chunk {
        writer.churn(usize::try_from(chunk).unwrap(), posts, 60 + changes / 20).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        between(&mut writer, nth).await;
    }
    posts
}

async fn holds(world: &World, emulator: &Emulator, posts: u64) {
    emulator.set_faults(Vec::new());
    // The last ghost may come a minute later.
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.exact((0..posts).map(post)).await;
    assert!(world.gaps().await.is_empty(), "nothing was lost: {:?}", world.gaps().await);
    let suspects = async || {
        let counter = world.counter(&post(0)).await;
        counter.shards.values().filter(|tally| tally.suspect).count()
    };
    assert_eq!(suspects().await, 0, "the hot post's row keys were fed by one shard at a time");
    let stats = emulator.stats();
    assert_eq!(stats.panics, 0);
    for fault in ["throttle", "drop_reply", "internal_error", "ghost", "conflict", "latency"] {
        assert!(stats.fired(fault) > 0, "{fault} never fired: {:?}", stats.faults);
    }
    println!("{} shards seen, faults {:?}", world.states().await.len(), stats.faults.values().flatten().count());
}

async fn stop(running: Vec<Running>) {
    for running in running {
        assert!(running.stop(Duration::from_secs(20)).await.exit().is_clean());
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "night: a soak"]
async fn counts_equal_rows_while_shards_split_and_everything_fails_now_and_then() {
    let (world, emulator) = stormy(1).await;
    let running = vec![world.start("a", brisk())];
    let posts = load(&world, 1, async |writer, nth| {
        if nth % 5 == 4 && writer.chance.token().is_multiple_of(2) {
            emulator.split_shard("likes", None, None).unwrap();
        }
        // An iterator lives for 15 minutes, and cannot be used for longer than that.
        if nth == 7 {
            let outage = Duration::from_secs(16 * 60);
            let mut rules = faults();
            rules.push(Rule::new(Fault::Outage).on("GetRecords").lasting(outage));
            let taken = || emulator.stats().requests["GetShardIterator"];
            let before = taken();
            emulator.set_faults(rules);
            tokio::time::sleep(outage + Duration::from_secs(60)).await;
            assert!(taken() >= before + 8, "every reader had to take a new one");
        }
    })
    .await;
    holds(&world, &emulator, posts).await;
    assert!(world.states().await.len() > 16, "shards were born and closed");
    stop(running).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "night: a soak"]
async fn two_streamers_without_leases_on_every_shard_are_exact() {
    let (world, emulator) = stormy(2).await;
    let rules = Rules { lease: None, ..brisk() };
    let running = vec![world.start("a", rules), world.start("b", rules)];
    let posts = load(&world, 2, async |_, _| {}).await;
    holds(&world, &emulator, posts).await;
    stop(running).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "night: a soak"]
async fn streamers_killed_at_random_20_times_are_exact() {
    let (world, emulator) = stormy(3).await;
    let mut running = vec![world.start("a", brisk()), world.start("b", brisk())];
    let (mut kills, every) = (0, (size("TALLY_TEST_CHANGES", 6_000) / 300 / 20).max(1));
    let posts = load(&world, 3, async |writer, nth| {
        if nth % every == 0 && kills < 20 {
            kills += 1;
            tokio::time::sleep(writer.chance.up_to(Duration::from_millis(900))).await;
            running.swap_remove(usize::try_from(writer.chance.token() % 2).unwrap()).kill().await;
            running.push(world.start(&format!("after-{kills}"), brisk()));
        }
    })
    .await;
    assert_eq!(kills, 20);
    holds(&world, &emulator, posts).await;
    stop(running).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "night: a soak"]
async fn an_item_hot_over_100_closed_shards_stays_under_2_kb() {
    let (world, emulator) =
        World::emulated(EmulatorConfig { shards: 1, roll_after: None, ..EmulatorConfig::default() }).await;
    let running = vec![world.start("a", brisk())];
    let mut writer = Writer::new(&world, 4).await;
    for round in 0..105u64 {
        for n in 0..3 {
            writer.set(post(0), user(round * 3 + n), Action::Like).await;
        }
        writer.flush().await;
        world.quiet().await;
        emulator.roll_shards("likes", None).unwrap();
    }
    writer.churn(30, 1, 10).await;
    world.exact([post(0)]).await;
    let item =
        sdk(&emulator).get_item().table_name("like_counts").key("post_id", AttributeValue::S(post(0).to_string()));
    let item = item.consistent_read(true).send().await.unwrap().item.unwrap();
    let bytes: usize = item.iter().map(|(name, value)| name.len() + width(value)).sum();
    let marks = world.counter(&post(0)).await.watermarks.marks().len();
    println!("{bytes} bytes, {marks} watermarks, {} stream shards known", world.states().await.len());
    assert!(bytes < 2048 && marks <= 4, "{bytes} bytes: {item:?}");
    stop(running).await;
}

fn width(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len() / 2 + 2,
        _ => 1,
    }
}
