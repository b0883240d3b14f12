//! Tests of starting and stopping a service, under paused time: it waits for its store and logs that, stops cleanly,
//! ends at a permanent fault, and is killed and restarted beside another one.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::telemetry::tests::Captured;
use crate::{Condition, Exit, How, Stop, UnixMillis};

const GRACE: Duration = Duration::from_secs(10);
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(1) };

/// A service whose store is up after `down_for` attempts, and which then beats once a second.
struct Beating {
    down_for: u32,
    beats: Arc<AtomicU32>,
}

impl App for Beating {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let tries = AtomicU32::new(0);
        let attempt = || async {
            let up = tries.fetch_add(1, Ordering::Relaxed) >= self.down_for;
            if up { Ok(()) } else { Err(Fault::Transient("connection refused".to_owned())) }
        };
        host.wait_for("store", BACKOFF, attempt).await?;
        let clock = host.clock();
        host.spawn(Stage::Intake, "beat", move |stop: Stop| async move {
            while stop.unless_requested(clock.sleep(Duration::from_secs(1))).await.is_ok() {
                self.beats.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(())
    }
}

fn host(name: &str) -> Host {
    Host::new(name).with_clock(Clock::starting_at(UnixMillis(0))).with_chance(Chance::seeded(1))
}

#[tokio::test(start_paused = true)]
async fn a_service_waits_for_its_store_runs_on_paused_time_and_stops_cleanly() {
    let beats = Arc::new(AtomicU32::new(0));
    let running = Running::start(Beating { down_for: 5, beats: Arc::clone(&beats) }, host("test"));
    tokio::task::yield_now().await;
    assert!(!running.host().readiness().report().ready);
    assert_eq!(running.ready().await, Ok(()));
    running.host().clock().sleep(Duration::from_millis(3_500)).await;
    assert_eq!(running.stop(GRACE).await.exit(), Exit::CLEAN);
    assert_eq!(beats.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_still_waiting_stops_cleanly_at_once() {
    let running = Running::start(Beating { down_for: u32::MAX, beats: Arc::default() }, host("test"));
    let readiness = running.host().readiness().clone();
    running.host().clock().sleep(Duration::from_secs(60)).await;
    let store = readiness.report().conditions["store"].clone();
    assert_eq!(store, Condition::NotReady("waiting: connection refused".to_owned()));
    let began = Instant::now();
    assert_eq!(running.stop(GRACE).await, Shutdown::default());
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(readiness.report().conditions["running"], Condition::NotReady("stopped".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_fault_fails_the_start_and_names_the_dependency() {
    struct Denied;
    impl App for Denied {
        async fn start(self, host: Host) -> anyhow::Result<()> {
            host.wait_for("store", BACKOFF, || async { Err(Fault::Fatal("access denied".to_owned())) }).await
        }
    }
    let running = Running::start(Denied, host("test"));
    let end = running.ready().await.expect_err("the start fails");
    assert_eq!(end.to_string(), "task `start` failed: cannot use store: access denied");
    assert_eq!(end.how, How::Failed("cannot use store: access denied".to_owned(), Exit::FAILED));
}

#[tokio::test(start_paused = true)]
async fn services_in_one_process_are_killed_and_restarted_one_by_one() {
    let whole = Readiness::new();
    let beats = Arc::new(AtomicU32::new(0));
    let start = |name: &str| {
        let host = host(name).with_readiness(whole.scope(name));
        Running::start(Beating { down_for: 0, beats: Arc::clone(&beats) }, host)
    };
    let (one, two) = (start("one"), start("two"));
    assert_eq!((one.ready().await, two.ready().await), (Ok(()), Ok(())));
    one.host().readiness().not_ready("partition-3", "no fence");
    let killed = one.host().clone();
    one.kill().await;
    assert_eq!(Arc::strong_count(&beats), 2, "nothing is left of what it owned");
    assert!(killed.worker(Stage::Work, "late", |_: Stop| pending()).has_ended(), "nothing starts any more");
    let report = whole.report();
    assert!(!report.ready && report.conditions.contains_key("one/partition-3"), "{report:?}");
    assert!(two.host().readiness().report().ready);
    let one = start("one");
    assert_eq!(one.ready().await, Ok(()));
    assert!(whole.report().ready);
    assert_eq!(two.stop(GRACE).await.exit(), Exit::CLEAN);
    // Dropping one kills it.
    drop(one);
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&beats), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_logged_at_its_start_every_ten_seconds_and_at_its_end() {
    let captured = Captured::default();
    let _guard = captured.listen();
    let (host, began) = (host("test"), Instant::now());
    let attempt = || async {
        let up = began.elapsed() > Duration::from_secs(35);
        if up { Ok(()) } else { Err(Fault::Transient("no route".to_owned())) }
    };
    host.wait_for("kafka", BACKOFF, attempt).await.unwrap();
    let text = captured.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("dependency=\"kafka\"")).collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[..4].iter().all(|line| line.contains("waiting for dependency") && line.contains("error=no route")));
    assert!(lines[4].contains("dependency is up"), "{text}");
}
