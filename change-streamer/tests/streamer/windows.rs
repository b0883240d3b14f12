//! A recount's window as the streamer sees it: what is captured, where the token stands, and when no report is written.

use std::time::Duration;

use tally_adapters::memory::Memory;
use tally_change_streamer::Rules;
use tally_core::ids::RowKey;
use tally_core::weight::Weight;
use tally_core::window::{Marker, Report, WindowRun};

use crate::world::{BEGAN, World, Writer, brisk, eventually, key, post, user};

struct Window {
    world: World,
    writer: Writer,
    key: RowKey,
    run: WindowRun,
}

impl Window {
    async fn new(memory: &Memory) -> Self {
        let world = World::twin(memory);
        let writer = Writer::new(&world, 1).await;
        Self { world, writer, key: key(&post(1), &user(1)), run: WindowRun::from(7) }
    }

    async fn put(&self, marker: Marker) {
        let standing = self.world.markers.marker(&self.key).await.unwrap();
        self.world.markers.put_marker(&self.key, marker, standing).await.unwrap();
    }

    async fn low(&self) {
        self.put(Marker::low(self.run)).await;
    }

    async fn high(&self) {
        self.put(Marker::high(self.run)).await;
    }

    /// The rows at the closing marker, once its token stands.
    async fn token(&self) -> i64 {
        let window = async || {
            let counter = self.world.counter(&self.key.counter).await;
            counter.shards.get(&self.key.shard).and_then(|tally| tally.window)
        };
        eventually("the token stands", async || window().await.is_some_and(|window| window.run == self.run)).await;
        window().await.unwrap().rows
    }

    async fn report(&self) -> Option<Report> {
        self.world.ports.recounts.report(&self.key, self.run).await.unwrap()
    }

    async fn like(&mut self, n: u64) {
        self.writer.like(&post(1), &user(n)).await;
    }

    async fn unlike(&mut self, n: u64) {
        self.writer.unlike(&post(1), &user(n)).await;
    }

    /// Users whose rows share the window's key.
    fn users(&self) -> Vec<u64> {
        (0..200).filter(|n| key(&post(1), &user(n)) == self.key).take(6).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_window_is_reported_with_its_token_exactly_at_the_closing_marker() {
    let memory = Memory::new(BEGAN, 2);
    let mut window = Window::new(&memory).await;
    let users = window.users();
    let running = window.world.start("a", brisk());
    window.like(users[0]).await;
    window.low().await;
    window.like(users[1]).await;
    window.like(users[2]).await;
    window.unlike(users[2]).await;
    window.high().await;
    window.like(users[3]).await;
    assert_eq!(window.token().await, 2, "what came behind the marker is not in it");
    eventually("the report is written", async || window.report().await.is_some()).await;
    let touched = window.report().await.unwrap().touched;
    let weight = |n: usize| touched.get(user(users[n]).as_str()).copied().map(Weight::get);
    assert_eq!((weight(0), weight(1), weight(2), weight(3)), (None, Some(1), Some(0), None));
    window.world.exact([post(1)]).await;
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_came_between_the_markers_sets_the_token_and_reports_nothing() {
    let memory = Memory::new(BEGAN, 1);
    let mut window = Window::new(&memory).await;
    let users = window.users();
    let first = window.world.start("a", brisk());
    window.low().await;
    window.like(users[0]).await;
    window.world.quiet().await;
    first.kill().await;
    let second = window.world.start("b", brisk());
    window.like(users[1]).await;
    window.high().await;
    assert_eq!(window.token().await, 2);
    window.world.quiet().await;
    assert_eq!(window.report().await, None);
    assert!(second.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_trim_inside_a_window_ends_it() {
    let memory = Memory::new(BEGAN, 1);
    let mut window = Window::new(&memory).await;
    let users = window.users();
    let running = window.world.start("a", brisk());
    window.low().await;
    window.like(users[0]).await;
    window.world.quiet().await;
    memory.streams().trim();
    tokio::time::sleep(Duration::from_secs(20 * 60)).await;
    window.like(users[1]).await;
    memory.streams().trim();
    eventually("the loss is recorded", async || !window.world.gaps().await.is_empty()).await;
    window.high().await;
    window.token().await;
    window.world.quiet().await;
    assert_eq!(window.report().await, None);
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_second_worker_captures_what_the_first_has_applied_and_reports_as_well() {
    let memory = Memory::new(BEGAN, 1);
    let mut window = Window::new(&memory).await;
    let users = window.users();
    let rules = Rules { lease: None, ..brisk() };
    let ahead = window.world.start("ahead", rules);
    let mut late = rules;
    // Its prefixes are written long after those of the first.
    late.cut.age = Duration::from_secs(5);
    let behind = window.world.start("behind", late);
    window.world.quiet().await;
    window.low().await;
    window.like(users[0]).await;
    window.like(users[1]).await;
    window.world.quiet().await;
    ahead.kill().await;
    window.unlike(users[0]).await;
    window.high().await;
    assert_eq!(window.token().await, 1);
    eventually("the second reports", async || window.report().await.is_some()).await;
    let touched = window.report().await.unwrap().touched;
    let weight = |n: usize| touched.get(user(users[n]).as_str()).copied().map(Weight::get);
    assert_eq!((weight(0), weight(1)), (Some(0), Some(1)));
    assert!(behind.stop(Duration::from_secs(9)).await.exit().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_window_open_for_too_long_is_given_up() {
    let memory = Memory::new(BEGAN, 1);
    let window = Window::new(&memory).await;
    let mut rules = brisk();
    rules.window.age = Duration::from_secs(60);
    let running = window.world.start("a", rules);
    window.low().await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    window.high().await;
    window.token().await;
    window.world.quiet().await;
    assert_eq!(window.report().await, None);
    assert!(running.stop(Duration::from_secs(9)).await.exit().is_clean());
}
