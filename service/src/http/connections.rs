//! The open connections of a listener: starts each as a task, tells it to end, and waits for all of them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;

use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};

/// Ready once the connection should end: its sender is dropped.
///
/// Each connection has its own channel; a shared one takes a lock whenever any connection uses it.
pub type Ending = oneshot::Receiver<Infallible>;

/// The connections. Dropping this drops those that are still open.
#[derive(Debug, Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    channels: HashMap<Id, oneshot::Sender<Infallible>>,
}

impl Connections {
    /// Starts a connection, the future that `serve` returns.
    pub(super) fn open<F>(&mut self, serve: impl FnOnce(Ending) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.forget_ended();
        let (channel, ending) = oneshot::channel();
        let task = self.tasks.spawn(serve(ending));
        self.channels.insert(task.id(), channel);
    }

    /// Returns how many there are, including those that ended since the last one was opened.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Tells all connections to end, and waits until they have.
    pub(super) async fn drain(&mut self) {
        self.channels.clear();
        while self.tasks.join_next().await.is_some() {}
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            // A panic has been logged by the panic hook.
            let id = ended.map_or_else(|panicked| panicked.id(), |(id, ())| id);
            self.channels.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_kept_of_those_that_ended_however_they_did() {
        let mut connections = Connections::default();
        for _ in 0..10 {
            connections.open(|_| async {});
        }
        connections.open(|_| async { panic!("a test's own") });
        tokio::task::yield_now().await;
        connections.open(|ending| async move { _ = ending.await });
        assert_eq!((connections.len(), connections.channels.len()), (1, 1));
    }
}
