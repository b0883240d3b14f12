//! Holds the relay back while it is too far ahead of a fold, in the local stack, whose Kafka deletes what was not read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tally_adapters::dynamodb::changes::Changes;
use tally_core::cached::StandingAt;
use tally_core::ports::log::Written;
use tally_core::topic::Offset;
use tally_service::{Clock, Stop, Task};
use tokio::sync::watch;

/// How often the task reads how far the folds are.
const EVERY: Duration = Duration::from_millis(200);

/// The messages that this process has written and that the folds have not read yet.
#[derive(Debug)]
pub(super) struct Ahead {
    /// How many bytes of a partition that may be; `None`: any number.
    most: Option<usize>,
    sent: Mutex<BTreeMap<u32, VecDeque<(Offset, usize)>>>,
    held: watch::Sender<bool>,
}

impl Ahead {
    pub(super) fn new(most: Option<usize>) -> Self {
        Self { most, sent: Mutex::default(), held: watch::Sender::default() }
    }

    /// Takes note of a message of so many bytes that was written.
    pub(super) fn sent(&self, Written { partition, offset }: Written, bytes: usize) {
        if self.most.is_some() {
            self.change(|sent| sent.entry(partition).or_default().push_back((offset, bytes)));
        }
    }

    /// Takes note of how far the folds are.
    fn folded(&self, standings: &BTreeMap<u32, StandingAt>) {
        self.change(|sent| {
            for (partition, messages) in sent {
                let folded = standings.get(partition).map_or(Offset(0), |stored| stored.at.offset());
                while messages.front().is_some_and(|(offset, _)| *offset < folded) {
                    messages.pop_front();
                }
            }
        });
    }

    /// Returns a flag that says whether the relay has to wait before it writes more.
    pub(super) fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u32, VecDeque<(Offset, usize)>>)) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut sent);
        let bytes = |messages: &VecDeque<(Offset, usize)>| messages.iter().map(|(_, bytes)| bytes).sum::<usize>();
        let held = self.most.is_some_and(|most| sent.values().any(|messages| bytes(messages) > most));
        self.held.send_if_modified(|before| std::mem::replace(before, held) != held);
    }
}

/// The task that reads how far the folds are.
pub(super) struct FollowFolds {
    pub(super) ahead: Arc<Ahead>,
    pub(super) store: Arc<Changes>,
    pub(super) partitions: u32,
    pub(super) clock: Clock,
}

impl Task for FollowFolds {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            match stop.unless_requested(self.store.standings(self.partitions)).await? {
                Ok(standings) => self.ahead.folded(&standings),
                Err(fault) => tracing::debug!(error = %fault, "the standings cannot be read"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tally_core::changes::Place;

    use super::*;

    #[test]
    fn a_relay_is_held_while_the_folds_are_more_than_so_many_bytes_behind_in_any_partition() {
        let ahead = Ahead::new(Some(100));
        let held = ahead.held();
        let written = |partition, offset| Written { partition, offset: Offset(offset) };
        for (partition, offset, is_held) in [(0, 0, false), (0, 1, false), (1, 0, false), (0, 2, true)] {
            ahead.sent(written(partition, offset), 50);
            assert_eq!(*held.borrow(), is_held, "{partition} {offset}");
        }
        let at = |offset| StandingAt { at: Place::new(1, Offset(offset)), ..StandingAt::default() };
        ahead.folded(&[(1, at(1))].into());
        assert!(*held.borrow());
        ahead.folded(&[(0, at(1))].into());
        assert!(!*held.borrow());
        let free = Ahead::new(None);
        free.sent(written(0, 0), 1 << 40);
        assert!(!*free.held().borrow());
    }
}
