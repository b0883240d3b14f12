//! The tasks of a [`Host`]: it runs them under names, notices when they end, and stops them stage by stage within a grace
//! period. It neither logs nor exits.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::task::{Ended, How, Outcome, Returned, Stage, Task, Work, outcome_of};
use crate::{Exit, Host, Stop, Switch};

/// Shares of the grace period: after three quarters every task gets the last call, and just before the end the
/// remaining tasks are aborted, so that the process exits in time.
const LAST_CALL: f64 = 0.75;
const ABORT: f64 = 0.95;

/// The tasks of a host.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    next: u64,
    live: BTreeMap<u64, Live>,
    ended: Vec<Ended>,
    /// No task may start any more.
    closed: bool,
}

#[derive(Debug)]
struct Live {
    name: String,
    stage: Stage,
    abort: Option<AbortHandle>,
}

/// A handle to a task that may end before the process does.
#[derive(Clone, Debug)]
pub struct Worker {
    switch: Switch,
    ended: CancellationToken,
}

impl Worker {
    pub fn request_stop(&self) {
        self.switch.request();
    }

    /// Returns when the worker has ended, in whatever way, and everything that it owned is dropped.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    pub fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Every end that matters, in order, including those before the request to stop.
    pub ended: Vec<Ended>,
}

impl Shutdown {
    /// Returns the exit code: clean only if nothing failed and no job returned another code.
    pub fn exit(&self) -> Exit {
        self.ended.iter().fold(Exit::CLEAN, |exit, end| exit.or(end.exit()))
    }
}

impl Host {
    /// Runs a task that must not end before it is asked to.
    pub fn spawn(&self, stage: Stage, name: &str, task: impl Task) {
        let switch = self.switch(stage).clone();
        let stop = switch.stop();
        let early: Returned = |_, stopping| (!stopping).then_some(How::Early);
        self.start(stage, name, early, switch, finishing(task.run(stop)));
    }

    /// Runs a task that may end at any time, or be stopped alone, such as one per partition, shard or request.
    pub fn worker(&self, stage: Stage, name: &str, task: impl Task) -> Worker {
        let switch = self.switch(stage).child();
        let stop = switch.stop();
        self.start(stage, name, |_, _| None, switch, finishing(task.run(stop)))
    }

    /// Runs the job that the process exists for. When it returns, the process ends with its exit code.
    pub fn job<Fut>(&self, name: &str, job: impl FnOnce(Stop) -> Fut)
    where
        Fut: Future<Output = anyhow::Result<Exit>> + Send + 'static,
    {
        let switch = self.switch(Stage::Intake).clone();
        let stop = switch.stop();
        self.start(Stage::Intake, name, |exit, _| Some(How::Finished(exit)), switch, Box::pin(job(stop)));
    }

    /// Returns the stop signal for code outside of any task: that of the first stage.
    pub fn stop(&self) -> Stop {
        self.switch(Stage::Intake).stop()
    }

    /// Waits for the first end that matters.
    pub async fn first_end(&self) -> Ended {
        let mut tasks = self.tasks.subscribe();
        let ended = tasks.wait_for(|tasks| !tasks.ended.is_empty()).await;
        ended.expect("the channel is open, since this call borrows the sender").ended[0].clone()
    }

    /// Stops stage by stage. After three quarters of `grace` every task gets the last call. Tasks that remain just
    /// before its end are aborted and named.
    pub async fn shut_down(&self, grace: Duration) -> Shutdown {
        let began = Instant::now();
        let drained = async {
            for stage in Stage::ALL {
                self.switch(stage).request();
                self.gone(|live| live.stage == stage).await;
            }
        };
        if timeout_at(began + grace.mul_f64(LAST_CALL), drained).await.is_err() {
            self.stages.iter().for_each(Switch::last_call);
            if timeout_at(began + grace.mul_f64(ABORT), self.gone(|_| true)).await.is_err() {
                self.tasks.send_modify(|tasks| {
                    let overran = tasks.live.values().map(|live| Ended { task: live.name.clone(), how: How::Overran });
                    tasks.ended.extend(overran);
                });
                self.abort_all();
                let _ = timeout_at(began + grace, self.gone(|_| true)).await;
            }
        }
        // A task that started in a stage that had already ended is not waited for.
        self.abort_all();
        Shutdown { ended: self.tasks.borrow().ended.clone() }
    }

    /// Aborts every task at once, as a crash would, and waits until all have ended.
    pub(crate) async fn kill(&self) {
        self.abort_all();
        self.gone(|_| true).await;
    }

    /// Aborts every task like [`Self::kill`], without waiting, and prevents any further start.
    pub(crate) fn abort_all(&self) {
        let mut left = Vec::new();
        self.tasks.send_modify(|tasks| {
            tasks.closed = true;
            left.extend(tasks.live.values_mut().filter_map(|live| live.abort.take()));
        });
        left.iter().for_each(AbortHandle::abort);
    }

    fn switch(&self, stage: Stage) -> &Switch {
        &self.stages[stage as usize]
    }

    #[expect(clippy::disallowed_methods, reason = "the one home of spawning: under a name, with its end reported")]
    fn start(&self, stage: Stage, name: &str, returned: Returned, switch: Switch, work: Work) -> Worker {
        let worker = Worker { switch, ended: CancellationToken::new() };
        let Some(id) = self.admit(stage, name) else {
            worker.ended.cancel();
            return worker;
        };
        let span = tracing::error_span!(parent: None, "task", service = %self.name, task = name);
        let entry = Entry { host: self.clone(), id, returned, worker: worker.clone(), outcome: Outcome::Aborted };
        let standstill = self.standstill.clone();
        let supervised = async move {
            let work = outcome_of(work);
            let outcome = match standstill {
                Some(standstill) => standstill.hold(work).await,
                None => work.await,
            };
            entry.leave(outcome);
        };
        let abort = tokio::spawn(supervised.instrument(span)).abort_handle();
        self.hold(id, abort);
        worker
    }

    /// Returns an id for a task that is about to start, unless no task may start any more.
    fn admit(&self, stage: Stage, name: &str) -> Option<u64> {
        let mut admitted = None;
        self.tasks.send_if_modified(|tasks| {
            if !tasks.closed {
                tasks.next += 1;
                tasks.live.insert(tasks.next, Live { name: name.to_owned(), stage, abort: None });
                admitted = Some(tasks.next);
            }
            admitted.is_some()
        });
        admitted
    }

    /// Keeps the handle with which to abort a task. If the host was closed meanwhile, the task is aborted now.
    fn hold(&self, id: u64, abort: AbortHandle) {
        let mut late = None;
        self.tasks.send_modify(|tasks| match tasks.live.get_mut(&id) {
            Some(_) if tasks.closed => late = Some(abort),
            Some(live) => live.abort = Some(abort),
            None => {}
        });
        if let Some(abort) = late {
            abort.abort();
        }
    }

    async fn gone(&self, which: impl Fn(&Live) -> bool + Send + Sync) {
        // The channel is open, since this call borrows the sender.
        let _ = self.tasks.subscribe().wait_for(|tasks| !tasks.live.values().any(&which)).await;
    }
}

/// A running task's entry in the list. It is dropped after everything that the task owned, and then removes the entry.
struct Entry {
    host: Host,
    id: u64,
    returned: Returned,
    worker: Worker,
    outcome: Outcome,
}

impl Entry {
    fn leave(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Aborted);
        // A closed channel upstream may tell a task of the shutdown before its own stage is asked to stop.
        let stopping = self.worker.switch.stop().is_requested() || self.host.stop().is_requested();
        let how = outcome.judge(stopping, self.returned);
        self.worker.ended.cancel();
        self.host.tasks.send_modify(|tasks| {
            let Some(live) = tasks.live.remove(&self.id) else { return };
            tasks.ended.extend(how.map(|how| Ended { task: live.name, how }));
        });
    }
}

fn finishing(run: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> Work {
    Box::pin(async move { run.await.map(|()| Exit::CLEAN) })
}

#[cfg(test)]
mod tests;
