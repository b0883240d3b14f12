//! Tests of how the tasks of a process end: the order in which they are asked to stop, the grace period, and the exit
//! code.

use anyhow::bail;
use parking_lot::Mutex;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;
use crate::Stopped;

const GRACE: Duration = Duration::from_secs(20);

/// A record of events, in order, with the second of each.
#[derive(Clone)]
struct Diary {
    origin: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Diary {
    fn new() -> Self {
        Self { origin: Instant::now(), lines: Arc::default() }
    }

    fn note(&self, what: &str) {
        let line = format!("{}s {what}", self.origin.elapsed().as_secs());
        self.lines.lock().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

/// A task that takes `drain` seconds to end after the request to stop.
fn draining(diary: &Diary, name: &'static str, drain: u64) -> impl Task + use<> {
    let diary = diary.clone();
    move |stop: Stop| async move {
        stop.requested().await;
        diary.note(&format!("{name} asked"));
        sleep(Duration::from_secs(drain)).await;
        diary.note(&format!("{name} done"));
        Ok(())
    }
}

fn end(task: &str, how: How) -> Ended {
    Ended { task: task.to_owned(), how }
}

#[tokio::test(start_paused = true)]
async fn a_stage_is_asked_to_stop_once_the_previous_one_has_ended() {
    let (host, diary) = (Host::new("test"), Diary::new());
    host.spawn(Stage::Support, "admin", draining(&diary, "admin", 0));
    host.spawn(Stage::Output, "checkpoint", draining(&diary, "checkpoint", 1));
    host.spawn(Stage::Work, "fold", draining(&diary, "fold", 3));
    host.spawn(Stage::Intake, "quick", draining(&diary, "quick", 1));
    host.spawn(Stage::Intake, "slow", draining(&diary, "slow", 2));
    let shutdown = host.shut_down(GRACE).await;
    assert_eq!(
        diary.lines(),
        [
            "0s quick asked",
            "0s slow asked",
            "1s quick done",
            "2s slow done",
            "2s fold asked",
            "5s fold done",
            "5s checkpoint asked",
            "6s checkpoint done",
            "6s admin asked",
            "6s admin done",
        ]
    );
    assert_eq!((shutdown.exit(), shutdown.ended), (Exit::CLEAN, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_sink_may_end_with_its_channel_before_its_stage_is_asked_to_stop() {
    let host = Host::new("test");
    let (sender, mut receiver) = mpsc::channel::<()>(1);
    host.spawn(Stage::Intake, "source", |stop: Stop| async move {
        stop.requested().await;
        drop(sender);
        sleep(Duration::from_secs(1)).await;
        Ok(())
    });
    let work = host.switch(Stage::Work).stop();
    host.spawn(Stage::Work, "sink", move |_| async move {
        assert_eq!(receiver.recv().await, None);
        assert!(!work.is_requested());
        Ok(())
    });
    assert_eq!(host.shut_down(GRACE).await, Shutdown::default());
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_end_at_any_time_or_be_stopped_alone() {
    let host = Host::new("test");
    host.worker(Stage::Work, "short", |_| async { Ok(()) }).ended().await;
    let until_stopped = |stop: Stop| async move {
        stop.requested().await;
        Ok(())
    };
    let one = host.worker(Stage::Work, "partition-1", until_stopped);
    let two = host.worker(Stage::Work, "partition-2", until_stopped);
    one.request_stop();
    one.ended().await;
    sleep(Duration::from_secs(1)).await;
    assert!(!two.has_ended());
    assert_eq!(host.shut_down(GRACE).await.ended, []);
    assert!(two.has_ended());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ignores_the_stop_is_aborted_and_named_within_the_grace_period() {
    let (host, diary) = (Host::new("test"), Diary::new());
    host.spawn(Stage::Intake, "stubborn", |_| pending());
    host.spawn(Stage::Work, "polite", draining(&diary, "polite", 1));
    let began = Instant::now();
    let shutdown = host.shut_down(GRACE).await;
    assert!(began.elapsed() < GRACE, "{:?}", began.elapsed());
    assert_eq!(shutdown.ended, [end("stubborn", How::Overran)]);
    assert_eq!(shutdown.exit(), Exit::FAILED);
    assert_eq!(diary.lines(), ["15s polite asked", "16s polite done"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_unsent_work_at_the_last_call_is_a_clean_end() {
    let host = Host::new("test");
    let began = Instant::now();
    host.spawn(Stage::Work, "flush", |stop: Stop| async move {
        stop.requested().await;
        stop.until_last_call(pending::<()>()).await?;
        Ok(())
    });
    assert_eq!(host.shut_down(GRACE).await.exit(), Exit::CLEAN);
    assert_eq!(began.elapsed(), GRACE.mul_f64(LAST_CALL));
}

#[tokio::test(start_paused = true)]
async fn stopped_is_no_clean_end_before_a_request_to_stop() {
    let host = Host::new("test");
    host.worker(Stage::Work, "unasked", |_| async { Err(Stopped.into()) }).ended().await;
    assert_eq!(host.shut_down(GRACE).await.ended, [end("unasked", How::Failed("stopped".to_owned(), Exit::FAILED))]);
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_the_process_with_its_own_code_unless_a_task_failed() {
    let host = Host::new("test");
    host.job("audit", |_| async { Ok(Exit::FAILED) });
    assert_eq!(host.first_end().await, end("audit", How::Finished(Exit::FAILED)));
    assert_eq!(host.shut_down(GRACE).await.exit(), Exit::FAILED);

    let host = Host::new("test");
    host.job("audit", |_| async { Ok(Exit::CLEAN) });
    host.spawn(Stage::Work, "late", |stop: Stop| async move {
        stop.requested().await;
        bail!("ledger refused")
    });
    assert_eq!(host.first_end().await.exit(), Exit::CLEAN);
    assert_eq!(host.shut_down(GRACE).await.exit(), Exit::FAILED);
}
