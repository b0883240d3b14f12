//! What a relay has gathered for one partition of the log of changes and not sent yet, and its one message under way
//! there. [`Relay`](super::Relay) has such a line for each partition.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Announcement, Fed, Rules};
use crate::changes::{Effect, Entry, Section};
use crate::ids::{Sequence, StreamShard};
use crate::time::{Now, UnixMillis};

/// A message that is not cut from entries and goes to every partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Said {
    Announcement(Announcement),
    Closing(StreamShard),
}

/// Such a message while it waits to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Saying {
    said: Said,
    value: Arc<[u8]>,
    /// The last entry of each stream shard that was gathered before it.
    behind: Vec<(StreamShard, Sequence)>,
    /// All of them are cut into messages, and every stream shard was stated behind them.
    is_next: bool,
}

/// An entry, and when its page was read.
type Gathered = (Entry, UnixMillis);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Line {
    /// What this partition has acknowledged of each stream shard.
    reached: BTreeMap<StreamShard, Fed>,
    /// The entries that are in no message yet.
    gathered: BTreeMap<StreamShard, Vec<Gathered>>,
    bytes: usize,
    /// Since when the first of them has been waiting.
    since: Option<Duration>,
    /// The messages that wait behind them.
    said: VecDeque<Saying>,
    /// Whether the next message states every stream shard.
    state: bool,
    under_way: Option<UnderWay>,
}

/// The content of the next message.
struct Cut {
    sections: Vec<Section>,
    /// What its acknowledgement means for each stream shard.
    reaches: Vec<(StreamShard, Fed)>,
    /// When the first of its pages was read.
    read: UnixMillis,
}

/// The message that was sent and not yet acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnderWay {
    value: Arc<[u8]>,
    /// What its acknowledgement means for each stream shard.
    reaches: Vec<(StreamShard, Fed)>,
    said: Option<Said>,
    since: Duration,
    tries: u32,
    /// Its outcome is unknown, so it has to be sent again.
    failed: bool,
}

impl Line {
    /// Begins a stream shard whose records behind `fed` are passed again. What this partition has acknowledged beyond
    /// `fed` stays.
    pub(super) fn begin(&mut self, shard: &StreamShard, fed: Fed) {
        self.gathered.remove(shard);
        let reached = self.reached.entry(shard.clone()).or_insert(fed);
        *reached = reached.later(fed);
    }

    pub(super) fn end(&mut self, shard: &StreamShard) {
        self.reached.remove(shard);
        self.gathered.remove(shard);
    }

    pub(super) fn gather(&mut self, shard: &StreamShard, entry: Entry, read: UnixMillis, now: Duration) {
        if self.fed(shard).is_none_or(|reached| Some(entry.sequence) <= reached.to) {
            return;
        }
        self.bytes += weight(&entry);
        self.since.get_or_insert(now);
        match self.gathered.get_mut(shard) {
            Some(entries) => entries.push((entry, read)),
            None => drop(self.gathered.insert(shard.clone(), vec![(entry, read)])),
        }
    }

    /// Queues a message behind everything that was passed.
    pub(super) fn say(&mut self, said: Said, value: Arc<[u8]>) {
        let last = |(shard, entries): (&StreamShard, &Vec<Gathered>)| Some((shard.clone(), entries.last()?.0.sequence));
        let behind = self.gathered.iter().filter_map(last).collect();
        self.said.push_back(Saying { said, value, behind, is_next: false });
        self.state = true;
    }

    /// Makes the next message state every stream shard.
    pub(super) fn state(&mut self) {
        self.state = true;
    }

    pub(super) fn failed(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.failed = true;
        }
    }

    /// Notes that the message under way was acknowledged. Returns what it was, if it was not cut from entries.
    pub(super) fn acknowledged(&mut self) -> Option<Said> {
        let UnderWay { reaches, said, .. } = self.under_way.take()?;
        for (shard, fed) in reaches {
            if let Some(reached) = self.reached.get_mut(&shard) {
                *reached = reached.later(fed);
            }
        }
        said
    }

    /// Returns the message to send now, if there is one, and how often it was tried.
    pub(super) fn next(
        &mut self,
        now: Now,
        rules: &Rules,
        taken: impl Fn(&StreamShard) -> Option<Fed>,
        write: impl FnOnce(UnixMillis, Vec<Section>) -> Vec<u8>,
    ) -> Option<(Arc<[u8]>, u32)> {
        if let Some(under_way) = &mut self.under_way {
            let again = std::mem::take(&mut under_way.failed);
            return again.then(|| {
                under_way.tries += 1;
                (Arc::clone(&under_way.value), under_way.tries)
            });
        }
        let due = self.since.is_some_and(|since| now.at >= since.saturating_add(rules.linger));
        let says_now = self.said.front().is_some_and(|saying| saying.is_next);
        if !says_now && (self.state || due || self.bytes >= rules.bytes) {
            let since = self.since.unwrap_or(now.at);
            let Cut { sections, reaches, read } = self.cut(now, rules.bytes, taken);
            if !sections.is_empty() {
                return Some(self.send(write(read, sections).into(), reaches, None, since));
            }
        }
        let Saying { said, value, .. } = self.said.pop_front()?;
        Some(self.send(value, Vec::new(), Some(said), now.at))
    }

    /// Returns the next message: a section for every stream shard, or for those with entries. It has about `most`
    /// bytes of entries, shared equally by the stream shards, as Kafka limits the size of a message. The rest waits
    /// for the next one.
    fn cut(&mut self, now: Now, most: usize, taken: impl Fn(&StreamShard) -> Option<Fed>) -> Cut {
        let mut gathered = std::mem::take(&mut self.gathered);
        let share = most / gathered.len().max(1);
        let all = self.state;
        let mut cut = Cut { sections: Vec::new(), reaches: Vec::new(), read: now.wall };
        for (shard, reached) in &self.reached {
            let entries = gathered.remove(shard);
            let Some(mut fed) = taken(shard).filter(|_| all || entries.is_some()) else { continue };
            let mut entries = entries.unwrap_or_default();
            let rest = entries.split_off(fitting(&entries, share));
            if !rest.is_empty() {
                fed = Fed { to: entries.last().map(|(entry, _)| entry.sequence), at: reached.at };
                self.gathered.insert(shard.clone(), rest);
            }
            let fed = reached.later(fed);
            cut.read = entries.iter().map(|(_, read)| *read).fold(cut.read, UnixMillis::min);
            let entries = entries.into_iter().map(|(entry, _)| entry).collect();
            let shard = shard.clone();
            cut.reaches.push((shard.clone(), fed));
            cut.sections.push(Section { shard, back: reached.to, to: fed.to, fed: Some(fed.at), entries });
        }
        self.bytes = self.gathered.values().flatten().map(|(entry, _)| weight(entry)).sum();
        self.since = (!self.gathered.is_empty()).then_some(now.at);
        let is_cut = |(shard, last): &(StreamShard, Sequence)| {
            self.gathered.get(shard).and_then(|rest| rest.first()).is_none_or(|(first, _)| first.sequence > *last)
        };
        for saying in &mut self.said {
            saying.is_next |= all && saying.behind.iter().all(is_cut);
        }
        self.state = self.said.iter().any(|saying| !saying.is_next);
        cut
    }

    fn send(
        &mut self,
        value: Arc<[u8]>,
        reaches: Vec<(StreamShard, Fed)>,
        said: Option<Said>,
        since: Duration,
    ) -> (Arc<[u8]>, u32) {
        self.under_way = Some(UnderWay { value: Arc::clone(&value), reaches, said, since, tries: 0, failed: false });
        (value, 0)
    }

    pub(super) fn wake_at(&self, rules: &Rules) -> Option<Duration> {
        let due = self.since.map(|since| since.saturating_add(rules.linger));
        let too_long = self.oldest().map(|oldest| oldest.saturating_add(rules.patience));
        match self.under_way {
            Some(_) => too_long,
            None => due,
        }
    }

    /// Returns since when the message under way, or its first entry, has been waiting.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.under_way.as_ref().map(|under_way| under_way.since)
    }

    pub(super) fn fed(&self, shard: &StreamShard) -> Option<Fed> {
        self.reached.get(shard).copied()
    }

    /// Returns whether entries of the stream shard are gathered, or a section of it is under way.
    pub(super) fn has(&self, shard: &StreamShard) -> bool {
        let under_way = self.under_way.iter().flat_map(|under_way| &under_way.reaches);
        self.gathered.contains_key(shard) || under_way.clone().any(|(sent, _)| sent == shard)
    }

    pub(super) fn waiting(&self) -> usize {
        self.bytes + self.under_way.as_ref().map_or(0, |under_way| under_way.value.len())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.gathered.is_empty() && self.said.is_empty() && self.under_way.is_none()
    }
}

/// Returns how many entries fit into `bytes`: at least one.
fn fitting(entries: &[Gathered], bytes: usize) -> usize {
    let mut room = bytes;
    let fits = entries.iter().skip(1).take_while(|(entry, _)| {
        room = room.saturating_sub(weight(entry));
        room > 0
    });
    entries.len().min(1 + fits.count())
}

/// Returns roughly how many bytes an entry takes.
fn weight(entry: &Entry) -> usize {
    let member = match &entry.effect {
        Effect::Weighed { member, .. } | Effect::Unreadable { member } => member.as_str().len(),
        Effect::Marked(_) => 48,
    };
    entry.key.counter.post.as_str().len() + member + Sequence::DIGITS + 60
}
