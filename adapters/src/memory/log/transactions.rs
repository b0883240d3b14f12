//! Transactions, time stamps, slow answers and compaction of the stand-in for a Kafka broker in memory. A transaction
//! is written in one step, by the last process that took its name over.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{self, Outgoing, Producer, Written};
use tally_core::time::UnixMillis;
use tally_service::Clock;
use tokio::sync::watch;

use super::Broker;
use super::state::Message;

impl Broker {
    /// Forgets those old records of a topic that have a later one of the same key, as compaction does. Offsets stay.
    pub fn compact(&self, topic: &str, is_old: impl Fn(&[u8]) -> bool) {
        self.change(|state| {
            let Some(topic) = state.topics.get_mut(topic) else { return };
            for stored in &mut topic.partitions {
                let mut later = BTreeSet::new();
                for record in stored.records.iter_mut().rev().filter(|record| !record.is_mark) {
                    let is_last = later.insert(record.key.clone());
                    if !is_last && record.value.as_deref().is_some_and(&is_old) {
                        (record.is_mark, record.value) = (true, None);
                    }
                }
            }
        });
    }

    /// Returns a writer of transactions under the name `id`.
    pub fn transactions(&self, id: &str) -> Transactions {
        Transactions { broker: self.clone(), id: id.to_owned(), token: Mutex::new(None) }
    }

    /// Delays each answer about a log's end by `span`; counts the answers that are ready.
    pub fn slow_looks(&self, span: Duration) -> watch::Receiver<u32> {
        let (looks, seen) = watch::channel(0);
        self.state().slow_looks = Some((span, looks));
        seen
    }

    /// Appends the mark that ends a transaction: a record with an offset that no read returns.
    pub fn end_transaction(&self, topic: &str, index: u32) {
        let mark = Message { is_mark: true, ..Message::default() };
        self.change_partition(topic, index, |stored| stored.records.push(mark));
    }
}

/// A producer that gives each record the time of its append.
pub struct Stamping(pub Broker, pub Clock);

#[async_trait]
impl Producer for Stamping {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.0.write(record, self.1.now())
    }
}

/// Writes transactions under a name, each in one step.
#[derive(Debug)]
pub struct Transactions {
    broker: Broker,
    id: String,
    /// The take-over under which it writes.
    token: Mutex<Option<u64>>,
}

#[async_trait]
impl log::Transactions for Transactions {
    async fn take_over(&self) -> Outcome<()> {
        let token = self.broker.change(|state| -> Outcome<u64> {
            state.answers()?;
            state.next += 1;
            state.writers.insert(self.id.clone(), state.next);
            Ok(state.next)
        })?;
        *self.token.lock() = Some(token);
        Ok(())
    }

    async fn write(&self, records: &[Outgoing<'_>]) -> Outcome<()> {
        let token = *self.token.lock();
        self.broker.change(|state| {
            state.answers()?;
            if token.is_none() || state.writers.get(&self.id) != token.as_ref() {
                return Err(Fault::Fatal(format!("another process writes as `{}`", self.id)));
            }
            if let Some(fault) = records.iter().find_map(|record| state.refusing.get(record.topic)) {
                return Err(fault.clone());
            }
            if let Some(record) = records.iter().find(|record| !state.topics.contains_key(record.topic)) {
                return Err(Fault::Transient(format!("there is no topic `{}`", record.topic)));
            }
            records.iter().try_for_each(|record| state.append(*record, UnixMillis(0)).map(|_| ()))
        })
    }
}
