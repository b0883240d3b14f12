use anyhow::bail;
use parking_lot::Mutex;
use std::future::pending;
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
    let (supervisor, diary) = (Supervisor::new("test"), Diary::new());
    supervisor.spawn(Stage::Support, "admin", draining(&diary, "admin", 0));
    supervisor.spawn(Stage::Output, "checkpoint", draining(&diary, "checkpoint", 1));
    supervisor.spawn(Stage::Work, "fold", draining(&diary, "fold", 3));
    supervisor.spawn(Stage::Intake, "quick", draining(&diary, "quick", 1));
    supervisor.spawn(Stage::Intake, "slow", draining(&diary, "slow", 2));
    let shutdown = supervisor.stop(GRACE).await;
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
async fn records_sent_before_the_source_stopped_are_drained_by_the_sink() {
    let (supervisor, diary) = (Supervisor::new("test"), Diary::new());
    let (sender, mut receiver) = mpsc::channel(4);
    supervisor.spawn(Stage::Intake, "source", |stop: Stop| async move {
        for sent in 0..4 {
            sender.send(sent).await.expect("the sink reads on");
        }
        stop.requested().await;
        Ok(())
    });
    let sunk = diary.clone();
    // The sink ends when its channel closes, which may happen before its own stage is asked to stop.
    supervisor.spawn(Stage::Work, "sink", move |_| async move {
        while let Some(row) = receiver.recv().await {
            sleep(Duration::from_secs(1)).await;
            sunk.note(&format!("row {row}"));
        }
        Ok(())
    });
    tokio::task::yield_now().await;
    assert_eq!(supervisor.stop(GRACE).await, Shutdown::default());
    assert_eq!(diary.lines(), ["1s row 0", "2s row 1", "3s row 2", "4s row 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_may_end_with_its_channel_before_its_stage_is_asked_to_stop() {
    let supervisor = Supervisor::new("test");
    let (sender, mut receiver) = mpsc::channel::<()>(1);
    supervisor.spawn(Stage::Intake, "source", |stop: Stop| async move {
        stop.requested().await;
        drop(sender);
        sleep(Duration::from_secs(1)).await;
        Ok(())
    });
    let work = supervisor.stop_of(Stage::Work);
    supervisor.spawn(Stage::Work, "sink", move |_| async move {
        assert_eq!(receiver.recv().await, None);
        assert!(!work.is_requested());
        Ok(())
    });
    assert_eq!(supervisor.stop(GRACE).await, Shutdown::default());
}

#[tokio::test(start_paused = true)]
async fn an_early_end_an_error_and_a_panic_are_reported_with_the_task_name() {
    let supervisor = Supervisor::new("test");
    supervisor.spawn(Stage::Work, "early", |_| async { Ok(()) });
    assert_eq!(supervisor.first_end().await, end("early", How::Early));
    supervisor.spawn(Stage::Work, "error", |_| async { bail!("table `likes` is missing") });
    supervisor.worker(Stage::Work, "panic", |_| async { panic!("lost {}", "count") }).ended().await;
    let shutdown = supervisor.stop(GRACE).await;
    let failed = How::Failed("table `likes` is missing".to_owned(), Exit::FAILED);
    let panicked = How::Panicked("lost count".to_owned());
    assert_eq!(shutdown.ended, [end("early", How::Early), end("error", failed), end("panic", panicked)]);
    assert_eq!(shutdown.exit(), Exit::FAILED);
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_end_at_any_time_or_be_stopped_alone() {
    let supervisor = Supervisor::new("test");
    supervisor.worker(Stage::Work, "short", |_| async { Ok(()) }).ended().await;
    let until_stopped = |stop: Stop| async move {
        stop.requested().await;
        Ok(())
    };
    let one = supervisor.worker(Stage::Work, "partition-1", until_stopped);
    let two = supervisor.worker(Stage::Work, "partition-2", until_stopped);
    one.request_stop();
    one.ended().await;
    sleep(Duration::from_secs(1)).await;
    assert!(!two.has_ended());
    assert_eq!(supervisor.stop(GRACE).await.ended, []);
    assert!(two.has_ended());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ignores_the_stop_is_aborted_and_named_within_the_grace_period() {
    let (supervisor, diary) = (Supervisor::new("test"), Diary::new());
    supervisor.spawn(Stage::Intake, "stubborn", |_| pending());
    supervisor.spawn(Stage::Work, "polite", draining(&diary, "polite", 1));
    let began = Instant::now();
    let shutdown = supervisor.stop(GRACE).await;
    assert!(began.elapsed() < GRACE, "{:?}", began.elapsed());
    assert_eq!(shutdown.ended, [end("stubborn", How::Overran)]);
    assert_eq!(shutdown.exit(), Exit::FAILED);
    assert_eq!(diary.lines(), ["15s polite asked", "16s polite done"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_unsent_work_at_the_last_call_is_a_clean_end() {
    let supervisor = Supervisor::new("test");
    let began = Instant::now();
    supervisor.spawn(Stage::Work, "flush", |stop: Stop| async move {
        stop.requested().await;
        stop.until_last_call(pending::<()>()).await?;
        Ok(())
    });
    assert_eq!(supervisor.stop(GRACE).await.exit(), Exit::CLEAN);
    assert_eq!(began.elapsed(), GRACE.mul_f64(LAST_CALL));
}

#[tokio::test(start_paused = true)]
async fn stopped_is_a_clean_end_only_after_a_request_to_stop() {
    let supervisor = Supervisor::new("test");
    supervisor.worker(Stage::Work, "asked", |stop: Stop| async move {
        stop.requested().await;
        Err(Stopped.into())
    });
    supervisor.worker(Stage::Work, "unasked", |_| async { Err(Stopped.into()) }).ended().await;
    assert_eq!(supervisor.stop(GRACE).await.ended, [end("unasked", How::Failed("stopped".to_owned(), Exit::FAILED))]);
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_the_process_with_its_own_code_unless_a_task_failed() {
    let supervisor = Supervisor::new("test");
    supervisor.job("audit", |_| async { Ok(Exit::FAILED) });
    assert_eq!(supervisor.first_end().await, end("audit", How::Finished(Exit::FAILED)));
    assert_eq!(supervisor.stop(GRACE).await.exit(), Exit::FAILED);

    let supervisor = Supervisor::new("test");
    supervisor.job("audit", |_| async { Ok(Exit::CLEAN) });
    supervisor.spawn(Stage::Work, "late", |stop: Stop| async move {
        stop.requested().await;
        bail!("ledger refused")
    });
    assert_eq!(supervisor.first_end().await.exit(), Exit::CLEAN);
    assert_eq!(supervisor.stop(GRACE).await.exit(), Exit::FAILED);
}

#[tokio::test(start_paused = true)]
async fn a_kill_drops_everything_that_tasks_own_and_prevents_further_starts() {
    let (supervisor, owned) = (Supervisor::new("test"), Arc::new(()));
    for name in ["one", "two"] {
        let owned = Arc::clone(&owned);
        supervisor.spawn(Stage::Work, name, |_| async move {
            pending::<()>().await;
            drop(owned);
            Ok(())
        });
    }
    tokio::task::yield_now().await;
    supervisor.kill().await;
    assert_eq!(Arc::strong_count(&owned), 1);
    let late = supervisor.worker(Stage::Work, "late", |_| pending());
    assert!(late.has_ended());
}
