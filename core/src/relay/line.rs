//! One partition of the log, as a relaying process feeds it: what is gathered for it, and the one message under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Announcement, Fed, Rules};
use crate::changes::{Body, DeploymentId, Effect, Entry, Message, Section};
use crate::ids::{Sequence, StreamShard};
use crate::time::{Now, UnixMillis};

/// A message that is not cut from entries, and goes to every partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Said {
    Announcement(Announcement),
    Closing(StreamShard),
}

/// A message of this kind that is not sent yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Saying {
    said: Said,
    value: Arc<[u8]>,
    /// What was handed in before it was cut into messages already.
    is_next: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Line {
    /// What this partition has acknowledged of each stream shard.
    reached: BTreeMap<StreamShard, Fed>,
    /// Entries that no message has yet.
    gathered: BTreeMap<StreamShard, Vec<Entry>>,
    bytes: usize,
    /// When the first of them came, and when its page was read.
    since: Option<(Duration, UnixMillis)>,
    /// What is said behind them.
    said: VecDeque<Saying>,
    /// The next message states every stream shard.
    state: bool,
    under_way: Option<UnderWay>,
}

/// The message under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnderWay {
    value: Arc<[u8]>,
    /// What its acknowledgement says of stream shards.
    reaches: Vec<(StreamShard, Fed)>,
    said: Option<Said>,
    since: Duration,
    tries: u32,
    /// It is not known whether it was appended, and it has to be sent again.
    failed: bool,
}

impl Line {
    /// The stream shard is handed in again behind `fed`. What this partition has acknowledged beyond that it has.
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
        self.since.get_or_insert((now, read));
        match self.gathered.get_mut(shard) {
            Some(entries) => entries.push(entry),
            None => drop(self.gathered.insert(shard.clone(), vec![entry])),
        }
    }

    /// Says something behind everything that was handed in.
    pub(super) fn say(&mut self, said: Said, value: Arc<[u8]>) {
        self.said.push_back(Saying { said, value, is_next: false });
        self.state = true;
    }

    /// States every stream shard with the next message.
    pub(super) fn state(&mut self) {
        self.state = true;
    }

    pub(super) fn failed(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.failed = true;
        }
    }

    /// The message under way was acknowledged; what it said, if it was not cut from entries.
    pub(super) fn acknowledged(&mut self) -> Option<Said> {
        let UnderWay { reaches, said, .. } = self.under_way.take()?;
        for (shard, fed) in reaches {
            if let Some(reached) = self.reached.get_mut(&shard) {
                *reached = reached.later(fed);
            }
        }
        said
    }

    /// The message to send now, if there is one, and how often it was tried.
    pub(super) fn next<'a>(
        &mut self,
        now: Now,
        rules: &Rules,
        taken: impl Fn(&StreamShard) -> Option<Fed>,
        cut: impl FnOnce(Vec<Section>) -> (Body, &'a DeploymentId),
    ) -> Option<(Arc<[u8]>, u32)> {
        if let Some(under_way) = &mut self.under_way {
            let again = std::mem::take(&mut under_way.failed);
            return again.then(|| {
                under_way.tries += 1;
                (Arc::clone(&under_way.value), under_way.tries)
            });
        }
        let due = self.since.is_some_and(|(since, _)| now.at >= since.saturating_add(rules.linger));
        let says_now = self.said.front().is_some_and(|saying| saying.is_next);
        if says_now {
            let Saying { said, value, .. } = self.said.pop_front()?;
            return Some(self.send(value, Vec::new(), Some(said), now.at));
        }
        if self.state || due || self.bytes >= rules.bytes {
            let read = self.since.map_or(now.wall, |(_, read)| read);
            let since = self.since.map_or(now.at, |(since, _)| since);
            let (sections, reaches) = self.cut(taken);
            if !sections.is_empty() {
                let (body, deployment) = cut(sections);
                let value: Arc<[u8]> = Message { read, body }.write(deployment).into();
                return Some(self.send(value, reaches, None, since));
            }
        }
        let Saying { said, value, .. } = self.said.pop_front()?;
        Some(self.send(value, Vec::new(), Some(said), now.at))
    }

    /// The sections of the next message: of every stream shard, or of those with entries.
    fn cut(&mut self, taken: impl Fn(&StreamShard) -> Option<Fed>) -> (Vec<Section>, Vec<(StreamShard, Fed)>) {
        let mut gathered = std::mem::take(&mut self.gathered);
        (self.bytes, self.since) = (0, None);
        self.said.iter_mut().for_each(|saying| saying.is_next = true);
        let all = std::mem::take(&mut self.state);
        let (mut sections, mut reaches) = (Vec::new(), Vec::new());
        for (shard, reached) in &self.reached {
            let entries = gathered.remove(shard);
            let Some(fed) = taken(shard).filter(|_| all || entries.is_some()) else { continue };
            let (entries, fed) = (entries.unwrap_or_default(), reached.later(fed));
            sections.push(Section { shard: shard.clone(), back: reached.to, to: fed.to, fed: Some(fed.at), entries });
            reaches.push((shard.clone(), fed));
        }
        (sections, reaches)
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
        let due = self.since.map(|(since, _)| since.saturating_add(rules.linger));
        let too_long = self.oldest().map(|oldest| oldest.saturating_add(rules.patience));
        match self.under_way {
            Some(_) => too_long,
            None => due,
        }
    }

    /// Since when the oldest thing waits that is not acknowledged.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.under_way.as_ref().map(|under_way| under_way.since)
    }

    pub(super) fn fed(&self, shard: &StreamShard) -> Option<Fed> {
        self.reached.get(shard).copied()
    }

    /// Whether anything of the stream shard is gathered or under way.
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

/// The bytes that an entry takes, more or less.
fn weight(entry: &Entry) -> usize {
    let member = match &entry.effect {
        Effect::Weighed { member, .. } | Effect::Unreadable { member } => member.as_str().len(),
        Effect::Marked(_) => 48,
    };
    entry.key.counter.post.as_str().len() + member + Sequence::DIGITS + 40
}
