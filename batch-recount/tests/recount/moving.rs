//! An audit of counts all of which move all the time: looks prove what merely moved, windows are for what differs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::memory::Memory;
use tally_core::audit::Summary;
use tally_core::event::Action;
use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShardId};
use tally_core::lineage::Listed;
use tally_core::ports::{ChangeStream, Iterator, Position, Records, StreamFault, StreamInfo};
use tally_service::Exit;

use crate::world::{BEGAN, World, Writer, drifted, ended, key, post, user};

const POSTS: u64 = 12;

/// What a recount finds while every post of a world changes ten times a second, two of them wrong; `with` is what the
/// recount works on.
async fn audited(memory: &Memory, with: impl FnOnce(&World) -> World) -> Summary {
    let world = World::twin(memory);
    let _streamer = world.streamer("s");
    let mut writer = Writer::new(&world, 1).await;
    writer.fill(0..POSTS, 9).await;
    world.quiet().await;
    for (n, by) in [(0, 2), (1, -1)] {
        let of = key(&post(n), &user(0));
        memory.counts().plant(&post(n), drifted(world.counter(&post(n)).await, &of, by));
    }
    let recounted = with(&world);
    let mut recount = std::pin::pin!(ended(recounted.start("moving", &[])));
    let exit = loop {
        tokio::select! {
            exit = &mut recount => break exit,
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                for n in 0..POSTS {
                    writer.churn(&post(n), 1, 40).await;
                }
            }
        }
    };
    assert_eq!(exit, Exit::CLEAN);
    let summary = world.summary().await;
    assert_eq!((summary.found(), summary.corrected, summary.alarms), (2, 2, 0), "{summary:?}");
    assert_eq!(summary.doubted, summary.settled, "{summary:?}");
    world.quiet().await;
    world.exact(POSTS).await;
    summary
}

#[tokio::test(start_paused = true)]
async fn what_merely_moves_is_proved_by_looks_and_what_differs_gets_the_only_windows() {
    let summary = audited(&Memory::new(BEGAN, 4), World::clone).await;
    assert_eq!(summary.windows, 2, "{summary:?}");
    assert!(summary.doubted > POSTS, "everything moved: {summary:?}");
}

#[tokio::test(start_paused = true)]
async fn where_the_stream_cannot_be_read_windows_do_what_looks_cannot() {
    let faults =
        [StreamFault::Fault(Fault::Fatal("access denied".to_owned())), StreamFault::Trimmed, StreamFault::Gone];
    for fault in faults {
        let deaf = |world: &World| {
            let of = Arc::clone(&world.ports.stream);
            world.with(|ports| ports.stream = Arc::new(Deaf { of, fault: fault.clone() }))
        };
        let summary = audited(&Memory::new(BEGAN, 4), deaf).await;
        assert!(summary.windows > POSTS, "{fault}: {summary:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_a_look_held_are_given_back_before_a_window_waits_for_room() {
    let memory = Memory::new(BEGAN, 4);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    let mut writer = Writer::new(&world, 1).await;
    writer.fill(0..1, 1).await;
    world.quiet().await;
    memory.counts().plant(&post(0), drifted(world.counter(&post(0)).await, &key(&post(0), &user(0)), 2));
    // Room for one row: the look holds it, then the window needs it.
    let mut recount = std::pin::pin!(ended(world.start_with("moving", &[], |rules| rules.held = 1)));
    let exit = tokio::time::timeout(Duration::from_secs(3600), async {
        loop {
            tokio::select! {
                exit = &mut recount => break exit,
                () = tokio::time::sleep(Duration::from_millis(100)) => {
                    for action in [Action::Unlike, Action::Like] {
                        writer.write(&[(post(0), user(0), action)]).await;
                    }
                }
            }
        }
    });
    assert_eq!(exit.await.expect("the recount comes to an end"), Exit::CLEAN);
    let summary = world.summary().await;
    assert_eq!((summary.found(), summary.corrected, summary.alarms), (1, 1, 0), "{summary:?}");
    world.exact(1).await;
}

/// A stream whose shards are listed and whose records are not to be had.
struct Deaf {
    of: Arc<dyn ChangeStream>,
    fault: StreamFault,
}

#[async_trait]
impl ChangeStream for Deaf {
    async fn info(&self) -> Result<StreamInfo, StreamFault> {
        self.of.info().await
    }

    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault> {
        self.of.shards(label).await
    }

    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault> {
        self.of.children(label, parent).await
    }

    async fn iterator(&self, _: &StreamLabel, _: &StreamShardId, _: Position) -> Result<Iterator, StreamFault> {
        Err(self.fault.clone())
    }

    async fn records(&self, _: &Iterator, _: u32) -> Result<Records, StreamFault> {
        Err(self.fault.clone())
    }
}
