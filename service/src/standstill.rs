//! A switch that pauses the tasks of a host, as SIGSTOP pauses a process, for simulations in which time goes on
//! meanwhile. It does not pause the tasks of a client library: a simulation has to hold those back itself.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// A switch that pauses tasks. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Standstill(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    holds: AtomicBool,
    held: Mutex<Vec<Waker>>,
}

impl Standstill {
    /// From now on, no held task runs any further.
    pub fn begin(&self) {
        self.0.holds.store(true, Ordering::Relaxed);
    }

    /// Resumes every task in the order in which it was woken. Timers that expired meanwhile fire now.
    pub fn end(&self) {
        self.0.holds.store(false, Ordering::Relaxed);
        let held = std::mem::take(&mut *self.0.held.lock().unwrap_or_else(PoisonError::into_inner));
        held.into_iter().for_each(Waker::wake);
    }

    /// Runs `work`, and pauses it while the switch is on.
    pub async fn hold<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.0.holds.load(Ordering::Relaxed) {
                self.0.held.lock().unwrap_or_else(PoisonError::into_inner).push(context.waker().clone());
                return Poll::Pending;
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Waits while the switch is on.
    pub async fn pass(&self) {
        self.hold(std::future::ready(())).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Host, Stage, Stop};

    #[tokio::test(start_paused = true)]
    async fn paused_tasks_miss_the_time_that_passes_and_resume_late() {
        let standstill = Standstill::default();
        let host = Host::new("still").with_standstill(standstill.clone());
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let began = tokio::time::Instant::now();
        host.spawn(Stage::Work, "ticking", move |_: Stop| async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                told.send(began.elapsed().as_secs())?;
            }
        });
        assert_eq!(heard.recv().await, Some(1));
        standstill.begin();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(heard.try_recv().is_err());
        standstill.end();
        assert_eq!((heard.recv().await, heard.recv().await), (Some(11), Some(12)));
    }
}
