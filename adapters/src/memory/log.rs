//! Kafka in memory, for tests under paused time and for what the Regions of a local stack send each other: topics of
//! partitions, and groups that rebalance when members come and go. A test can make the broker refuse writes, trim, lose
//! its tail and create a topic anew.

mod state;
mod transactions;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{
    self, Intake, Outgoing, OwnedPartition, Producer, Rebalance, Records, Revocation, Written,
};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition, TopicId};
use tokio::sync::watch;

pub use self::transactions::{Stamping, Transactions};
use state::{Assignment, Member, Notice, State, Stored, Topic};

/// How many records one read returns at most.
const RUN: usize = 256;

/// A broker; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Broker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes of the state, to wake calls that wait for one.
    changed: watch::Sender<u64>,
}

impl Broker {
    /// A broker without topics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty topic with a new id. One of the same name is gone with all it had.
    pub fn create_topic(&self, name: &str, partitions: u32) {
        self.change(|state| {
            state.next += 1;
            let id = TopicId(format!("topic-{}", state.next).into());
            let partitions = (0..partitions).map(|_| Stored::default()).collect();
            state.topics.insert(name.to_owned(), Topic { id, partitions });
            state.balance_all();
        });
    }

    /// Adds empty partitions to a topic.
    pub fn add_partitions(&self, topic: &str, count: usize) {
        self.change(|state| {
            if let Some(topic) = state.topics.get_mut(topic) {
                topic.partitions.extend((0..count).map(|_| Stored::default()));
            }
            state.balance_all();
        });
    }

    /// Deletes the records of a partition before `start`, as retention does.
    pub fn trim(&self, topic: &str, index: u32, start: u64) {
        self.change_partition(topic, index, |stored| {
            let gone = usize::try_from(start.saturating_sub(stored.start)).unwrap_or(usize::MAX);
            stored.records.drain(..gone.min(stored.records.len()));
            stored.start = stored.start.max(start);
        });
    }

    /// Forgets the records of a partition from `end` on, as an unclean election does.
    pub fn lose_tail(&self, topic: &str, index: u32, end: u64) {
        self.change_partition(topic, index, |stored| {
            stored.records.truncate(usize::try_from(end.saturating_sub(stored.start)).unwrap_or(usize::MAX));
        });
    }

    /// Makes every write to `topic` fail, until it is called with `None`.
    pub fn refuse_writes(&self, topic: &str, fault: Option<Fault>) {
        self.change(|state| match fault {
            Some(fault) => _ = state.refusing.insert(topic.to_owned(), fault),
            None => _ = state.refusing.remove(topic),
        });
    }

    /// Takes the broker down, or up again. While it is down it answers nothing, and members keep their partitions and
    /// read nothing.
    pub fn set_down(&self, down: bool) {
        self.change(|state| state.down = down);
    }

    /// Takes every partition of `group` from its owner, as after a session time-out, and assigns them again: to other
    /// members, if there are several.
    pub fn expire(&self, group: &str) {
        self.change(|state| {
            if let Some(group) = state.groups.get_mut(group) {
                group.expire();
            }
            state.balance_all();
        });
    }

    /// Adds a member that reads `topic` to `group`.
    pub fn join(&self, group: &str, topic: &str) -> Membership {
        let id = self.change(|state| {
            state.next += 1;
            let id = state.next;
            let member = Member { id, topic: topic.to_owned(), inbox: Vec::new() };
            state.groups.entry(group.to_owned()).or_default().members.push(member);
            state.balance_all();
            id
        });
        Membership { broker: self.clone(), group: group.to_owned(), topic: topic.to_owned(), id }
    }

    /// Returns a reader of `topic` whose bookmarks belong to `group`.
    pub fn reader(&self, group: &str, topic: &str) -> TopicReader {
        TopicReader { broker: self.clone(), group: group.to_owned(), topic: topic.to_owned() }
    }

    /// Writes a record with the time `at`. [`send`](Producer::send) writes one with the time 0.
    ///
    /// # Errors
    /// The broker is down, it refuses writes to the topic, or there is no such partition.
    pub fn write(&self, record: Outgoing<'_>, at: UnixMillis) -> Outcome<Written> {
        self.change(|state| {
            state.answers()?;
            match state.refusing.get(record.topic) {
                Some(fault) => Err(fault.clone()),
                None => state.append(record, at),
            }
        })
    }

    /// Writes a record with the time `at`, also while the broker is down or refuses writes.
    pub fn append(&self, record: Outgoing<'_>, at: UnixMillis) -> Outcome<Written> {
        self.change(|state| state.append(record, at))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.0.changed.send_modify(|version| *version += 1);
        result
    }

    fn change_partition(&self, topic: &str, index: u32, change: impl FnOnce(&mut Stored)) {
        self.change(|state| state.partition(topic, index).map(change));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Waits until `look` finds something, and returns it.
    async fn until<T>(&self, mut look: impl FnMut(&mut State) -> Option<T> + Send) -> T {
        let mut changed = self.0.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(found) = look(&mut self.state()) {
                return found;
            }
            // The sender is in the broker that this call borrows.
            let _ = changed.changed().await;
        }
    }

    fn log(&self, partition: &Partition) -> Outcome<Log> {
        let mut state = self.state();
        let stored = state.asked(partition)?;
        let (start, end) = (Offset(stored.start), Offset(stored.end()));
        Ok(Log { topic: state.topics[&*partition.topic].id.clone(), start, end })
    }
}

/// A member of a group. Dropping it is its death: its partitions are lost to it.
#[derive(Debug)]
pub struct Membership {
    broker: Broker,
    group: String,
    topic: String,
    id: u64,
}

#[async_trait]
impl Intake for Membership {
    async fn next(&mut self) -> Outcome<Rebalance> {
        let notice = self.broker.until(|state| {
            let member = state.groups.get_mut(&self.group)?.members.iter_mut().find(|member| member.id == self.id)?;
            (!member.inbox.is_empty()).then(|| member.inbox.remove(0))
        });
        Ok(match notice.await {
            Notice::Revoked(over, indices) => {
                let name = |index| Partition { topic: self.topic.as_str().into(), index };
                Rebalance::Revoked(over, indices.into_iter().map(name).collect())
            }
            Notice::Assigned(assignments) => {
                let handle = |assignment: Assignment| {
                    let partition = Partition { topic: self.topic.as_str().into(), index: assignment.index };
                    let position = Mutex::new(None);
                    let (broker, group) = (self.broker.clone(), self.group.clone());
                    Arc::new(Handle { broker, group, partition, assignment, position }) as Arc<dyn OwnedPartition>
                };
                Rebalance::Assigned(assignments.into_iter().map(handle).collect())
            }
        })
    }

    async fn leave(self: Box<Self>) {}
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.broker.change(|state| {
            let Some(group) = state.groups.get_mut(&self.group) else { return };
            group.members.retain(|member| member.id != self.id);
            group.owners.retain(|_, owner| {
                let stays = owner.member != self.id;
                if !stays {
                    owner.assignment.revoked.send_replace(Some(Revocation::Lost));
                }
                stays
            });
            state.balance_all();
        });
    }
}

/// A partition that a member owns.
struct Handle {
    broker: Broker,
    group: String,
    partition: Partition,
    assignment: Assignment,
    /// Where the next read begins.
    position: Mutex<Option<Offset>>,
}

impl Handle {
    /// Takes the next run of records, if there is one and the partition is not revoked.
    fn read(&self, state: &mut State) -> Option<Outcome<Arc<Records>>> {
        let owned = self.assignment.revoked.borrow().is_none();
        let mut position = self.position.lock();
        let from = (*position).filter(|_| owned && !state.down)?;
        let stored = state.partition(&self.partition.topic, self.partition.index)?;
        if from.0 < stored.start || from.0 > stored.end() {
            *position = None;
            return Some(Err(Fault::Transient(format!("{} has no offset {from}", self.partition))));
        }
        let records = stored.read(from.0, stored.end(), RUN);
        let last = records.last_offset()?;
        *position = Some(last.next());
        Some(Ok(Arc::new(records)))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.partition).finish()
    }
}

#[async_trait]
impl OwnedPartition for Handle {
    fn partition(&self) -> &Partition {
        &self.partition
    }

    async fn partitions(&self) -> Outcome<u32> {
        let state = self.broker.state();
        state.answers()?;
        let count = state.topics.get(&*self.partition.topic).map_or(0, |topic| topic.partitions.len());
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    async fn log(&self) -> Outcome<Log> {
        let (log, slow) = (self.broker.log(&self.partition), self.broker.state().slow_looks.clone());
        if let Some((span, looks)) = slow {
            looks.send_modify(|looks| *looks += 1);
            tokio::time::sleep(span).await;
        }
        log
    }

    async fn committed(&self) -> Outcome<Option<Offset>> {
        let state = self.broker.state();
        state.answers()?;
        Ok(state.bookmarks.get(&(self.group.clone(), self.partition.clone())).copied())
    }

    async fn start_at(&self, offset: Offset) -> Outcome<()> {
        if self.assignment.revoked.borrow().is_some() {
            return Err(Fault::Transient(format!("{} is no longer assigned here", self.partition)));
        }
        *self.position.lock() = Some(offset);
        Ok(())
    }

    async fn records(&self) -> Outcome<Arc<Records>> {
        self.broker.until(|state| self.read(state)).await
    }

    async fn revoked(&self) -> Revocation {
        let mut over = self.assignment.revoked.subscribe();
        let ended = over.wait_for(Option::is_some).await;
        // The sender lives in the assignment of this handle.
        ended.ok().and_then(|over| *over).unwrap_or(Revocation::Lost)
    }

    fn finished(&self, offset: Offset) {
        self.broker.change(|state| state.commit(&self.group, &self.partition, self.assignment.id, offset));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.broker.change(|state| {
            let Some(group) = state.groups.get_mut(&self.group) else { return };
            let Some(owner) = group.owners.get_mut(&self.assignment.index) else { return };
            if owner.assignment.id != self.assignment.id {
                return;
            }
            if self.assignment.revoked.borrow().is_none() {
                owner.idle = true;
            } else {
                group.owners.remove(&self.assignment.index);
                state.balance_all();
            }
        });
    }
}

#[async_trait]
impl Producer for Broker {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.write(record, UnixMillis(0))
    }
}

/// Reads a topic outside of groups.
#[derive(Clone, Debug)]
pub struct TopicReader {
    broker: Broker,
    group: String,
    topic: String,
}

#[async_trait]
impl log::TopicReader for TopicReader {
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>> {
        let count = self.broker.state().topics.get(&self.topic).map_or(0, |topic| topic.partitions.len());
        let indices = 0..u32::try_from(count).unwrap_or(u32::MAX);
        let partitions = indices.map(|index| Partition { topic: self.topic.as_str().into(), index });
        partitions.map(|partition| self.broker.log(&partition).map(|log| (partition, log))).collect()
    }

    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
        let mut state = self.broker.state();
        let stored = state.asked(partition)?;
        if from.0 < stored.start {
            return Err(Fault::Transient(format!("{partition} has no offset {from}")));
        }
        Ok(stored.read(from.0, to.0.min(stored.end()), RUN))
    }

    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>> {
        let mut state = self.broker.state();
        let stored = state.asked(partition)?;
        let found = stored.records.iter().position(|message| !message.is_mark && message.at >= at);
        Ok(found.map(|nth| Offset(stored.start + nth as u64)))
    }

    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>> {
        Ok(self.broker.state().bookmarks.get(&(self.group.clone(), partition.clone())).copied())
    }

    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()> {
        self.broker.change(|state| _ = state.bookmarks.insert((self.group.clone(), partition.clone()), at));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
