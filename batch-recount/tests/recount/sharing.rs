//! Several processes on one audit, audits that are continued, and a watcher that has more than one thing to do.

use std::time::Duration;

use tally_adapters::memory::Memory;
use tally_core::audit::RunScope;
use tally_core::ids::RowKey;
use tally_core::lineage::Loss;
use tally_core::ports::QueueReason;
use tally_service::Exit;

use crate::world::{BEGAN, World, Writer, drifted, ended, eventually, key, post, user};

const POSTS: u64 = 60;

/// Posts of some pages, half of them wrong in one row key.
async fn drifting(memory: &Memory, world: &World) {
    Writer::new(world, 1).await.fill(0..POSTS, 25).await;
    world.quiet().await;
    for n in (0..POSTS).step_by(2) {
        let first = key(&post(n), &user(0));
        memory.counts().plant(&post(n), drifted(world.counter(&post(n)).await, &first, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn two_processes_share_one_audit_and_the_run_says_what_both_have_found() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    drifting(&memory, &world).await;
    let slow = |world: &World, name: &str, line: &[&str]| world.start_with(name, line, |rules| rules.segments = 8);
    let one = slow(&world, "one", &["--read-units-per-second", "2"]);
    eventually("the run is known", async || !world.ports.recounts.runs(1).await.unwrap().is_empty()).await;
    let run = world.latest().await.run.to_string();
    let two = slow(&world, "two", &["--resume", &run, "--read-units-per-second", "2"]);
    assert_eq!((ended(one).await, ended(two).await), (Exit::CLEAN, Exit::CLEAN));
    let run = world.latest().await;
    let shares = world.ports.recounts.shares(run.run).await.unwrap();
    assert!(shares.len() == 2 && shares.iter().all(|share| share.rows > 0), "both had a part in it");
    assert_eq!((run.summary.rows, run.summary.corrected), (POSTS * 25, POSTS / 2));
    assert!(run.ended.is_some());
    world.exact(POSTS).await;
}

#[tokio::test(start_paused = true)]
async fn an_audit_that_died_in_the_midst_of_a_segment_goes_on_behind_what_was_settled() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..POSTS, 25).await;
    world.quiet().await;
    let slow = |world: &World, name: &str, line: &[&str]| world.start_with(name, line, |rules| rules.segments = 1);
    let first = slow(&world, "first", &["--read-units-per-second", "1"]);
    eventually("a cursor is kept", async || {
        let Some(run) = world.ports.recounts.runs(1).await.unwrap().pop() else { return false };
        let segments = world.ports.recounts.segments(run.run).await.unwrap();
        segments.iter().any(|segment| segment.cursor.is_some() && !segment.done)
    })
    .await;
    first.kill().await;
    let run = world.latest().await;
    let before = world.ports.recounts.shares(run.run).await.unwrap();
    assert_eq!(ended(slow(&world, "second", &["--resume", &run.run.to_string()])).await, Exit::CLEAN);
    let shares = world.ports.recounts.shares(run.run).await.unwrap();
    let second = shares.iter().find(|share| !before.contains(share)).expect("the second has a share of its own");
    assert!(second.rows < POSTS * 25, "the second has counted everything once more");
    assert_eq!(world.summary().await.windows, 0, "the key it died in was looked at, not taken for a wrong one");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_is_continued_stays_one_and_no_other_run_becomes_one() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    drifting(&memory, &world).await;
    for (line, other) in [(&["--dry-run"][..], &[][..]), (&[], &["--dry-run"])] {
        let died = world.start("died", &[line, &["--read-units-per-second", "1"]].concat());
        tokio::time::sleep(Duration::from_secs(2)).await;
        died.kill().await;
        let run = world.latest().await.run.to_string();
        let again = world.start("again", &[&["--resume", &run], other].concat()).ended().await;
        if line.is_empty() {
            assert!(!again.exit().is_clean(), "a run that corrects is not continued as a dry run");
        } else {
            assert_eq!(again.exit(), Exit::FAILED);
            assert_eq!(world.counter(&post(0)).await.likes, 28, "nothing was corrected");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_settles_what_is_flagged_beside_an_audit_that_cannot_settle_everything() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..4, 9).await;
    world.quiet().await;
    let first = |n| key(&post(n), &user(0));
    memory.counts().plant(&post(0), drifted(world.counter(&post(0)).await, &first(0), 9_000));
    world.ports.checkpoints.open_gap(&Loss::FenceReset("likes/0".into()), world.clock.now()).await.unwrap();
    let _watcher = world.start("w", &["--watch"]);
    let is_queued = async |key: RowKey| {
        let queued = world.ports.recounts.queued(None).await.unwrap().items;
        queued.iter().any(|queued| queued.key == key)
    };
    eventually("a large correction is withheld", async || is_queued(first(0)).await).await;
    for n in [1, 2] {
        memory.counts().plant(&post(n), drifted(world.counter(&post(n)).await, &first(n), -20));
        world.ports.recounts.enqueue(&first(n), QueueReason::Negative, BEGAN).await.unwrap();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(world.difference(&post(n)).await, None, "what was flagged is settled meanwhile");
    }
    assert_eq!(world.ports.checkpoints.gaps().await.unwrap().len(), 1);
    assert_eq!(world.recount(&["--post", "p-0", "--force"]).await, Exit::CLEAN);
    eventually("the gap is closed", async || world.ports.checkpoints.gaps().await.unwrap().is_empty()).await;
    let runs = world.ports.recounts.runs(1_000).await.unwrap();
    assert_eq!(runs.iter().filter(|run| run.scope == RunScope::Audit).count(), 1, "the table was scanned once");
    world.exact(4).await;
}
