//! A recount of a hot post among many small ones while it is written and its stream splits, over the emulator. The size
//! is small; `RECOUNT_HOT_ROWS`, `RECOUNT_POSTS` and `RECOUNT_WRITES` make it as large as there is time for.

use std::time::Duration;

use tally_core::audit::Cause;
use tally_core::event::Action;
use tally_core::ports::{LedgerEntry, Mended};
use tally_emulator::Config;
use tally_service::Exit;

use crate::world::{World, Writer, ended, post, user};

fn size(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(start_paused = true)]
#[ignore = "night: a soak"]
async fn a_hot_post_and_many_small_ones_are_exact_after_one_audit_while_writes_go_on_and_shards_split() {
    let (hot, posts, writes) = (size("RECOUNT_HOT_ROWS", 1_500), size("RECOUNT_POSTS", 60), size("RECOUNT_WRITES", 30));
    let (world, emulator) = World::emulated(Config { shards: 2, seed: 3, ..Config::default() }).await;
    let streamer = world.streamer("s");
    let mut writer = Writer::new(&world, 1).await;
    writer.fill(0..1, hot).await;
    writer.fill(1..posts, 8).await;
    world.quiet().await;
    // Drift that a loss of stream leaves behind: totals and their shards, moved behind the rows' back.
    for n in (1..posts).step_by(10) {
        let counter = world.counter(&post(n)).await;
        let entry = LedgerEntry {
            counter: post(n),
            shard: None,
            at: world.clock.now(),
            run: u128::from(n).into(),
            by: "test".to_owned(),
            before: counter.likes,
            after: counter.likes + 2,
            why: "injected".to_owned(),
        };
        let mended = world.ports.counts.mend_total(&post(n), counter.version, counter.likes + 2, &entry).await;
        assert_eq!(mended.unwrap(), Mended::Mended);
    }
    let lost: Vec<_> = (0..posts).step_by(7).map(|n| (post(n), user(0), Action::Unlike)).collect();
    streamer.kill().await;
    writer.write(&lost).await;
    emulator.trim("likes", None, None).unwrap();
    let _streamer = world.streamer("t");

    let mut recount = std::pin::pin!(ended(world.start("r", &[])));
    let began = tokio::time::Instant::now();
    let (mut rounds, mut splits) = (0, 0);
    let exit = loop {
        tokio::select! {
            exit = &mut recount => break exit,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                let changes = usize::try_from(writes).unwrap();
                writer.churn(&post(0), changes, hot * 2).await;
                rounds += 1;
                if rounds % 9 == 0 && rounds < 40 {
                    splits += usize::from(emulator.split_shard("likes", None, None).is_ok());
                }
            }
        }
    };
    println!("the first run took {} s, {rounds} of them with writes", began.elapsed().as_secs());
    assert_eq!(exit, Exit::CLEAN, "{:?}", world.summary().await);
    assert!(splits > 0, "no stream shard was split");
    let found = world.summary().await;
    assert!(found.drift[&Cause::Total] >= 1 && found.drift[&Cause::Drift] >= 1, "{found:?}");
    world.exact(posts).await;
    assert_eq!(world.recount(&[]).await, Exit::CLEAN);
    assert_eq!(world.summary().await.found(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_reorders_within_the_guard_time_misleads_no_window_and_one_without_the_waits() {
    let wrong_without = wrong(Duration::ZERO).await;
    assert_eq!(wrong(Duration::from_secs(2)).await, 0);
    assert!(wrong_without > 0, "the stream never put a window to the test");
}

/// How many of some windows on a key that changes all the time come to a wrong count, with this guard time.
async fn wrong(guard: Duration) -> usize {
    let mut wrong = 0;
    for seed in 0..6 {
        let within = Duration::from_millis(1_500);
        let config = Config { shards: 1, seed, stream_delay: within, stream_reorder: within, ..Config::default() };
        let (world, _emulator) = World::emulated(config).await;
        let _streamer = world.streamer("s");
        let mut writer = Writer::new(&world, seed).await;
        writer.fill(0..1, 10).await;
        world.quiet().await;
        let mut recount = std::pin::pin!(ended(world.start_with("r", &["--post", "p-0"], |rules| rules.guard = guard)));
        loop {
            tokio::select! {
                _ = &mut recount => break,
                () = tokio::time::sleep(Duration::from_millis(40)) => writer.churn(&post(0), 2, 24).await,
            }
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        world.quiet().await;
        wrong += usize::from(world.difference(&post(0)).await.is_some());
    }
    wrong
}
