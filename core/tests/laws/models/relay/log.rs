//! Part of the model of the relay: the log of changes that the relay writes, as a reader of each partition sees it.

use tally_core::changes::{Body, Filter, Item, Lost, Message, Opened};
use tally_core::ids::StreamShard;
use tally_core::time::UnixMillis;

use super::super::{number, opened, place};
use super::{PARTITIONS, Relays, Rule, stream_shard};
use crate::intern::Number;

/// The time at which every message is appended. Only the announcement of losses matters here.
const THEN: UnixMillis = UnixMillis(0);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Log(pub(super) [Reader; PARTITIONS as usize]);

/// A reader of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reader {
    pub(super) filter: Filter,
    /// The accepted records, each with whether a loss was announced before it.
    pub(super) accepted: Vec<(u8, bool)>,
    pub(super) hole: bool,
    /// Whether the log has lost an acknowledged message.
    pub(super) lost: bool,
}

impl Log {
    /// Returns a log in which the first stream shard is announced.
    pub(super) fn new() -> Self {
        let opened = Message { read: THEN, body: opened([stream_shard(0)]) };
        let mut reader = Reader::default();
        reader.take(&opened);
        Self([reader.clone(), reader])
    }
}

impl Reader {
    fn take(&mut self, message: &Message) {
        let Self { filter, accepted, hole, .. } = self;
        let taken = filter.take(place(0_u8), THEN, message, |item, loss| {
            if let Item::Entry(entry) = item {
                accepted.push((number(entry.sequence), loss.is_some()));
            }
        });
        *hole |= taken.hole.is_some();
    }

    /// Jumps, since the reader's position is no longer in the log.
    fn jump(&mut self) {
        self.filter.jump(place(0_u8), THEN);
        (self.hole, self.lost) = (true, true);
    }

    /// Makes a message what a mutant sees in it: the mutant ends every stream shard that an announcement does not name.
    fn completed(&self, message: &mut Message) {
        if let Body::Opened(Opened { shards, ended }) = &mut message.body {
            let named = |shard: &StreamShard| shards.iter().any(|opening| opening.shard == *shard);
            ended.extend(self.filter.open_shards().map(|(shard, _)| shard.clone()).filter(|shard| !named(shard)));
        }
    }

    /// Returns whether a loss was announced before a record; `None` if the record was not accepted.
    pub(super) fn announced_before(&self, at: u8) -> Option<bool> {
        self.accepted.iter().find(|(accepted, _)| *accepted == at).map(|(_, announced)| *announced)
    }

    pub(super) fn as_of(&self) -> Option<UnixMillis> {
        self.filter.standing().as_of
    }

    /// Returns the last record of an open stream shard in the partition.
    pub(super) fn reached(&self, shard: u8) -> Option<u8> {
        let shard = stream_shard(shard);
        self.filter.open_shards().find(|(open, _)| **open == shard).map(|(_, at)| at.map(number).unwrap_or_default())
    }
}

impl Relays {
    /// Returns the log after a message was appended and read, or after the log has lost it again.
    pub(super) fn appended(&self, log: Number, message: Number, is_lost: bool) -> Number {
        self.grown.get((log, message, is_lost), || {
            let mut after = log;
            self.logs.update(&mut after, |log| {
                let (partition, sent) = &*self.messages.get(message);
                let reader = &mut log.0[*partition as usize];
                if is_lost {
                    reader.lost = true;
                    return;
                }
                let mut message = self.as_read(sent);
                if !self.obeys(Rule::UnnamedStay) && reader.as_of().is_none() {
                    reader.completed(&mut message);
                }
                reader.take(&message);
            });
            after
        })
    }

    /// Returns the log after the reader of a partition has jumped.
    pub(super) fn jumped(&self, mut log: Number, partition: usize) -> Number {
        self.logs.update(&mut log, |log| log.0[partition].jump());
        log
    }

    /// Returns a message as the reader sees it; a mutant ignores a part of it.
    fn as_read(&self, message: &Message) -> Message {
        let mut message = message.clone();
        match &mut message.body {
            Body::Sections { sections, .. } if !self.obeys(Rule::LinksCompared) => {
                sections.iter_mut().for_each(|section| section.back = None);
            }
            Body::Closed(closed) if !self.obeys(Rule::LinksCompared) => closed.back = None,
            Body::Lost(Lost { next, .. }) if !self.obeys(Rule::AnnouncementRaises) => *next = None,
            _ => {}
        }
        message
    }
}
