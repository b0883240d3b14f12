//! The state of the stand-in for a Kafka broker in memory: topics with their records, and groups with the owners of
//! their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_core::event::partition_of;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Outgoing, Records, Revocation, Written};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition, TopicId};
use tokio::sync::watch;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) topics: BTreeMap<String, Topic>,
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) bookmarks: BTreeMap<(String, Partition), Offset>,
    /// The last number given to a topic, member, assignment or take-over.
    pub(super) next: u64,
    /// The last take-over of each name that transactions are written under.
    pub(super) writers: BTreeMap<String, u64>,
    pub(super) down: bool,
    /// Topics that refuse writes, each with the fault that it returns.
    pub(super) refusing: BTreeMap<String, Fault>,
    /// How long each answer about a log's end is delayed, and the number of answers that are ready.
    pub(super) slow_looks: Option<(Duration, watch::Sender<u32>)>,
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) id: TopicId,
    pub(super) partitions: Vec<Stored>,
}

#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) start: u64,
    pub(super) records: Vec<Message>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    pub(super) at: UnixMillis,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
    /// Whether this only takes up an offset, as the end of a transaction or a compacted record: no read returns it.
    pub(super) is_mark: bool,
}

#[derive(Debug, Default)]
pub(super) struct Group {
    /// Members in the order they joined, each with its unread rebalances.
    pub(super) members: Vec<Member>,
    pub(super) owners: BTreeMap<u32, Owner>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) topic: String,
    pub(super) inbox: Vec<Notice>,
}

#[derive(Debug)]
pub(super) enum Notice {
    Assigned(Vec<Assignment>),
    Revoked(Revocation, Vec<u32>),
}

#[derive(Debug)]
pub(super) struct Owner {
    pub(super) member: u64,
    pub(super) assignment: Assignment,
    /// Whether its handle was dropped without a revocation. The group does not know that, and the member is still the
    /// owner.
    pub(super) idle: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) index: u32,
    pub(super) id: u64,
    pub(super) revoked: Arc<watch::Sender<Option<Revocation>>>,
}

impl State {
    pub(super) fn answers(&self) -> Outcome<()> {
        if self.down { Err(Fault::Transient("the broker is down".to_owned())) } else { Ok(()) }
    }

    pub(super) fn partition(&mut self, topic: &str, index: u32) -> Option<&mut Stored> {
        self.topics.get_mut(topic)?.partitions.get_mut(index as usize)
    }

    /// Returns a partition that the broker is asked about.
    pub(super) fn asked(&mut self, partition: &Partition) -> Outcome<&mut Stored> {
        self.answers()?;
        let stored = self.partition(&partition.topic, partition.index);
        stored.ok_or_else(|| Fault::Transient(format!("there is no {partition}")))
    }

    pub(super) fn append(&mut self, record: Outgoing<'_>, at: UnixMillis) -> Outcome<Written> {
        let topic = self.topics.get_mut(record.topic);
        let topic = topic.ok_or_else(|| Fault::Transient(format!("there is no topic `{}`", record.topic)))?;
        let count = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
        let partition = record.partition.unwrap_or_else(|| record.key.map_or(0, |key| partition_of(key, count)));
        let stored = topic.partitions.get_mut(partition as usize);
        let stored = stored.ok_or_else(|| Fault::Poison(format!("`{}` has no partition {partition}", record.topic)))?;
        let offset = Offset(stored.end());
        let headers = record.headers.iter().map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)));
        let [key, value] = [record.key, record.value].map(|bytes| bytes.map(<[u8]>::to_vec));
        stored.records.push(Message { at, key, value, headers: headers.collect(), is_mark: false });
        Ok(Written { partition, offset })
    }

    /// Stores the offset that the owner of a partition commits. Ignores one by a member from which the group has taken
    /// the partition.
    pub(super) fn commit(&mut self, group: &str, partition: &Partition, assignment: u64, offset: Offset) {
        let owner = self.groups.get(group).and_then(|group| group.owners.get(&partition.index));
        if owner.is_some_and(|owner| owner.assignment.id == assignment) {
            self.bookmarks.insert((group.to_owned(), partition.clone()), offset);
        }
    }

    /// Gives every free partition to the member whose turn it is, and asks the owners of others to give them back.
    pub(super) fn balance_all(&mut self) {
        let Self { topics, groups, next, .. } = self;
        for group in groups.values_mut() {
            let Some(topic) = group.members.first().map(|member| member.topic.clone()) else { continue };
            let count = topics.get(&topic).map_or(0, |topic| topic.partitions.len());
            group.balance(u32::try_from(count).unwrap_or(u32::MAX), next);
        }
    }
}

impl Stored {
    pub(super) fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    pub(super) fn read(&self, from: u64, to: u64, limit: usize) -> Records {
        let mut records = Records::default();
        let skipped = usize::try_from(from - self.start).unwrap_or(usize::MAX);
        let messages = (from..to).zip(self.records.iter().skip(skipped)).filter(|(_, message)| !message.is_mark);
        for (offset, message) in messages.take(limit) {
            let headers = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
            records.push(Offset(offset), message.at, message.key.as_deref(), message.value.as_deref(), headers);
        }
        records
    }
}

impl Group {
    /// Takes every partition from its owner. If there are several members, the next one has its turn.
    pub(super) fn expire(&mut self) {
        for (index, owner) in std::mem::take(&mut self.owners) {
            owner.assignment.revoked.send_replace(Some(Revocation::Lost));
            self.tell(owner.member, Notice::Revoked(Revocation::Lost, vec![index]));
        }
        if !self.members.is_empty() {
            self.members.rotate_left(1);
        }
    }

    pub(super) fn balance(&mut self, partitions: u32, next: &mut u64) {
        let members: Vec<u64> = self.members.iter().map(|member| member.id).collect();
        let mut given: BTreeMap<u64, Vec<Assignment>> = BTreeMap::new();
        for index in 0..partitions {
            let turn = members[index as usize % members.len()];
            match self.owners.get(&index) {
                Some(owner) if owner.member == turn => {}
                Some(owner) if !owner.idle => {
                    let member = owner.member;
                    let over = &owner.assignment.revoked;
                    if over.send_if_modified(|over| over.replace(Revocation::Revoked).is_none()) {
                        self.tell(member, Notice::Revoked(Revocation::Revoked, vec![index]));
                    }
                }
                _ => {
                    *next += 1;
                    let assignment = Assignment { index, id: *next, revoked: Arc::new(watch::Sender::new(None)) };
                    self.owners.insert(index, Owner { member: turn, assignment: assignment.clone(), idle: false });
                    given.entry(turn).or_default().push(assignment);
                }
            }
        }
        for (member, assignments) in given {
            self.tell(member, Notice::Assigned(assignments));
        }
    }

    pub(super) fn tell(&mut self, member: u64, notice: Notice) {
        if let Some(member) = self.members.iter_mut().find(|found| found.id == member) {
            member.inbox.push(notice);
        }
    }
}
