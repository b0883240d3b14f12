//! Stops a process where it stands, as SIGSTOP would: every call it makes, and every answer it waits for, is held until
//! the gate opens again.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// A gate; clones are the same one. Those that wait are let through in the order of waiting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    shut: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    /// Lets nothing through any more.
    pub(crate) fn shut(&self) {
        self.0.shut.store(true, Ordering::Relaxed);
    }

    /// Lets everything through.
    pub(crate) fn open(&self) {
        self.0.shut.store(false, Ordering::Relaxed);
        let waiting = std::mem::take(&mut *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Completes while the gate is open.
    pub(crate) async fn pass(&self) {
        poll_fn(|context| {
            if !self.0.shut.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
