//! The rules of a window, one by one, as the ports see them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::memory::Memory;
use tally_batch_recount as recount;
use tally_core::audit::Cause;
use tally_core::counter::{Counter, Update};
use tally_core::ids::{CounterId, MemberKey, RowKey, UserId};
use tally_core::ports::{
    Applied, Counts, Cursor, Judged, LedgerEntry, Like, MarkerPut, Markers, Mended, Outcome, Page, Rows, ScannedRow,
    Segment,
};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;
use tally_core::window::{Marker, Phase, Verdict};
use tally_service::Exit;
use tokio::time::Instant;

use crate::world::{BEGAN, World, Writer, drifted, key, post, user};

const GUARD: Duration = Duration::from_secs(2);

/// One call that matters to a window.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Marker(Option<Marker>),
    Put { marker: Marker, required: Option<Marker> },
    Weights,
    Counter,
    Judge { correction: i64 },
}

/// A marker put on its way: where to, what, and over which.
type Ghost = (RowKey, Marker, Option<Marker>);

/// Ports that write down when they were called.
#[derive(Clone)]
struct Watched {
    rows: Arc<dyn Rows>,
    markers: Arc<dyn Markers>,
    counts: Arc<dyn Counts>,
    calls: Arc<Mutex<Vec<(Instant, Call)>>>,
    /// Opening markers that arrive late: the caller hears nothing, and a copy is kept.
    ghosts: Arc<Mutex<Vec<Ghost>>>,
    haunt: Arc<Mutex<usize>>,
    /// Another run's marker takes the place of ours while rows are read, once.
    intrude: Arc<Mutex<bool>>,
}

impl Watched {
    fn over(world: &World) -> (Self, World) {
        let recount::Ports { rows, markers, counts, .. } = world.ports.clone();
        let watched = Self {
            rows,
            markers,
            counts,
            calls: Arc::default(),
            ghosts: Arc::default(),
            haunt: Arc::default(),
            intrude: Arc::default(),
        };
        let ports = watched.clone();
        let world = world.with(|to| {
            to.rows = Arc::new(ports.clone());
            to.markers = Arc::new(ports.clone());
            to.counts = Arc::new(ports);
        });
        (watched, world)
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push((Instant::now(), call));
    }

    fn calls(&self) -> Vec<(Instant, Call)> {
        self.calls.lock().unwrap().clone()
    }
}

#[async_trait]
impl Rows for Watched {
    async fn like(&self, key: &RowKey, user: &UserId) -> Outcome<Option<Like>> {
        self.rows.like(key, user).await
    }
    async fn present(&self, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>> {
        self.rows.present(keys, member).await
    }
    async fn likes(&self, key: &RowKey, after: Option<&Cursor>, limit: Option<u32>) -> Outcome<Page<Like>> {
        self.rows.likes(key, after, limit).await
    }
    async fn users(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<UserId>> {
        self.rows.users(key, after).await
    }
    async fn weights(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<(MemberKey, Option<Weight>)>> {
        self.note(Call::Weights);
        if std::mem::take(&mut *self.intrude.lock().unwrap()) {
            let standing = self.markers.marker(key).await?;
            self.markers.put_marker(key, Marker::low(99.into()), standing).await?;
        }
        self.rows.weights(key, after).await
    }
    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<ScannedRow>> {
        self.rows.scan(segment, after).await
    }
}

#[async_trait]
impl Markers for Watched {
    async fn marker(&self, key: &RowKey) -> Outcome<Option<Marker>> {
        let marker = self.markers.marker(key).await?;
        self.note(Call::Marker(marker));
        Ok(marker)
    }
    async fn put_marker(&self, key: &RowKey, marker: Marker, required: Option<Marker>) -> Outcome<MarkerPut> {
        self.note(Call::Put { marker, required });
        if marker.phase == Phase::Low && std::mem::take(&mut *self.haunt.lock().unwrap()) > 0 {
            self.ghosts.lock().unwrap().push((key.clone(), marker, required));
            return Ok(MarkerPut::Unclear);
        }
        let put = self.markers.put_marker(key, marker, required).await;
        let late = std::mem::take(&mut *self.ghosts.lock().unwrap());
        for (key, marker, required) in late {
            // The late copy lands inside the window of the next run.
            self.markers.put_marker(&key, marker, required).await?;
        }
        put
    }
}

#[async_trait]
impl Counts for Watched {
    async fn apply(&self, post: &CounterId, update: &Update) -> Outcome<Applied> {
        self.counts.apply(post, update).await
    }
    async fn counter(&self, post: &CounterId) -> Outcome<Option<Counter>> {
        self.note(Call::Counter);
        self.counts.counter(post).await
    }
    async fn counters(&self, posts: &[CounterId]) -> Outcome<Vec<Outcome<Option<Counter>>>> {
        self.counts.counters(posts).await
    }
    async fn judge(&self, verdict: &Verdict, entry: &LedgerEntry) -> Outcome<Judged> {
        self.note(Call::Judge { correction: verdict.correction });
        self.counts.judge(verdict, entry).await
    }
    async fn mend_total(&self, post: &CounterId, version: u64, sum: i64, entry: &LedgerEntry) -> Outcome<Mended> {
        self.counts.mend_total(post, version, sum, entry).await
    }
    async fn suspect(&self, key: &RowKey, now: UnixMillis) -> Outcome<()> {
        self.counts.suspect(key, now).await
    }
    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
        self.counts.scan(segment, after).await
    }
}

/// A post with one row, so that one row key is recounted, wrong by `drift`.
async fn one_key(memory: &Memory, world: &World, drift: i64) -> RowKey {
    Writer::new(world, 1).await.fill(0..1, 1).await;
    world.quiet().await;
    let key = key(&post(0), &user(0));
    let counter = drifted(world.counter(&post(0)).await, &key, drift);
    memory.counts().plant(&post(0), counter);
    key
}

/// The calls of the windows, each beginning with its opening marker's put; the marker read before it apart.
fn windows(calls: &[(Instant, Call)]) -> Vec<Vec<(Instant, Call)>> {
    let mut windows: Vec<Vec<(Instant, Call)>> = Vec::new();
    for (at, call) in calls {
        if matches!(call, Call::Put { marker, .. } if marker.phase == Phase::Low) {
            windows.push(Vec::new());
        }
        if let Some(window) = windows.last_mut() {
            window.push((*at, call.clone()));
        }
    }
    windows
}

fn at(window: &[(Instant, Call)], wanted: impl Fn(&Call) -> bool) -> Instant {
    window.iter().find(|(_, call)| wanted(call)).expect("the call was made").0
}

#[tokio::test(start_paused = true)]
async fn rows_are_read_a_guard_time_after_the_opening_and_a_guard_time_before_the_closing_marker() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    one_key(&memory, &world, 3).await;
    let (watched, world) = Watched::over(&world);
    assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::CLEAN);
    let windows = windows(&watched.calls());
    assert_eq!(windows.len(), 2, "one to correct, one to find nothing");
    for window in windows {
        let low = at(&window, |call| matches!(call, Call::Put { marker, .. } if marker.phase == Phase::Low));
        let high = at(&window, |call| matches!(call, Call::Put { marker, .. } if marker.phase == Phase::High));
        let read = at(&window, |call| *call == Call::Weights);
        assert!(read >= low + GUARD, "the rows were read {:?} after the opening marker", read - low);
        assert!(high >= read + GUARD, "the closing marker was put {:?} after the rows were read", high - read);
    }
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn every_marker_is_put_over_the_one_that_was_read_and_a_closing_one_over_its_own_opening_one() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    one_key(&memory, &world, 3).await;
    let (watched, world) = Watched::over(&world);
    *watched.intrude.lock().unwrap() = true;
    assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::CLEAN);
    let (mut read, mut puts) = (None, 0);
    for (_, call) in watched.calls() {
        match call {
            Call::Marker(found) => read = found,
            Call::Put { marker, required } => {
                assert_eq!(required, marker.requires(read));
                if marker.phase == Phase::High {
                    assert_eq!(required, Some(Marker::low(marker.run)), "whatever stands there by now");
                }
                puts += 1;
            }
            _ => {}
        }
    }
    assert_eq!(puts, 6, "the window taken over was followed by another");
}

#[tokio::test(start_paused = true)]
async fn a_verdict_of_nothing_is_written_and_takes_its_token() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    let key = one_key(&memory, &world, 0).await;
    let (watched, world) = Watched::over(&world);
    assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::CLEAN);
    let judged: Vec<_> = watched.calls().into_iter().map(|(_, call)| call).collect();
    assert!(judged.contains(&Call::Judge { correction: 0 }));
    assert_eq!(world.counter(&post(0)).await.shards[&key.shard].window, None, "an older report could still correct");
    let ledger = world.ports.recounts.ledger(&post(0), 9).await.unwrap();
    assert_eq!(ledger.iter().map(|line| (line.before, line.after)).collect::<Vec<_>>(), [(1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_an_opening_marker_opens_nothing() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    one_key(&memory, &world, 3).await;
    let (watched, world) = Watched::over(&world);
    *watched.haunt.lock().unwrap() = 1;
    assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::CLEAN);
    let opened = watched
        .calls()
        .into_iter()
        .filter(|(_, call)| matches!(call, Call::Put { marker, .. } if marker.phase == Phase::Low));
    assert_eq!(opened.count(), 3, "the one that got lost was followed by a new run");
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspect_is_judged_by_the_switches_read_before_its_rows_and_once_every_shard_has_passed() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    let key = one_key(&memory, &world, 2).await;
    let mut counter = world.counter(&post(0)).await;
    let tally = counter.shards.get_mut(&key.shard).unwrap();
    (tally.suspect, tally.switches) = (true, 3);
    memory.counts().plant(&post(0), counter);
    let (watched, watched_world) = Watched::over(&world);
    assert_eq!(watched_world.recount(&["--post", "p-0"]).await, Exit::CLEAN);
    let first = windows(&watched.calls()).remove(0);
    assert!(at(&first, |call| *call == Call::Counter) <= at(&first, |call| *call == Call::Weights));
    let high = at(&first, |call| matches!(call, Call::Put { marker, .. } if marker.phase == Phase::High));
    let judged = at(&first, |call| matches!(call, Call::Judge { .. }));
    assert!(judged > high + GUARD, "other shards may still have had changes of before the closing marker");
    world.exact(1).await;
    assert_eq!(world.summary().await.drift[&Cause::Suspect], 1);
}

#[tokio::test(start_paused = true)]
async fn a_large_correction_is_withheld_until_a_person_insists() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    let key = one_key(&memory, &world, 5_000).await;
    assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::FAILED);
    assert_eq!(world.counter(&post(0)).await.shards[&key.shard].rows, 5_001);
    assert_eq!(world.summary().await.withheld, 1);
    assert!(!world.counter(&post(0)).await.is_sound(), "no answer calls it exact any more");
    let queued = world.ports.recounts.queued(None).await.unwrap().items;
    assert_eq!(queued.iter().map(|queued| &queued.key).collect::<Vec<_>>(), [&key]);
    assert_eq!(world.recount(&["--post", "p-0", "--force"]).await, Exit::CLEAN);
    assert!(world.counter(&post(0)).await.is_sound(), "the verdict says what is so");
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_streamer_a_window_comes_to_nothing_and_is_said_so() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let streamer = world.streamer("s");
    let key = one_key(&memory, &world, 3).await;
    streamer.kill().await;
    assert_eq!(world.recount(&["--post", "p-0"]).await, Exit::FAILED);
    assert_eq!(world.counter(&post(0)).await.shards[&key.shard].rows, 4, "nothing was corrected without a report");
    assert_eq!(world.summary().await.left, 1);
}
