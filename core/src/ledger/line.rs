//! What waits to be acknowledged: sealed prefixes in order, and for each partition of the log a line of messages of which the
//! first alone is under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Again, RequestId, Seconds};
use crate::ids::{Ordinal, Sequence};
use crate::ports::Outcome;
use crate::time::UnixMillis;

/// A message on its way to a partition of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// The partition.
    pub partition: u32,
    /// The stream shard.
    pub shard: Ordinal,
    /// What is written.
    pub value: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// Prefixes and lapses, in the order of the stream.
    sealed: VecDeque<Sealed>,
    lines: BTreeMap<u32, VecDeque<Waiting>>,
    bytes: usize,
}

/// A prefix, or a lapse in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sealed {
    /// Its last record; `None` of a lapse between two records.
    last: Option<Sequence>,
    /// Everything written before this time is in it or before it.
    covers: UnixMillis,
    /// When its records were written.
    seconds: Seconds,
    at: Duration,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Prefix { unacknowledged: usize },
    Lapse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    message: Arc<Outgoing>,
    /// The prefix it is of.
    prefix: Sequence,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waits(Option<Again>),
    UnderWay { id: RequestId, tries: u32 },
}

impl Lines {
    pub(super) fn push(
        &mut self,
        messages: Vec<Arc<Outgoing>>,
        last: Sequence,
        covers: UnixMillis,
        seconds: Option<Seconds>,
        at: Duration,
    ) {
        let kind = Kind::Prefix { unacknowledged: messages.len() };
        let seconds = seconds.unwrap_or_else(|| Seconds::of(covers));
        self.sealed.push_back(Sealed { last: Some(last), covers, seconds, at, kind });
        for message in messages {
            self.bytes += message.value.len();
            let line = self.lines.entry(message.partition).or_default();
            line.push_back(Waiting { message, prefix: last, state: State::Waits(None) });
        }
    }

    pub(super) fn push_lapse(&mut self, seconds: Seconds, last: Option<Sequence>, covers: UnixMillis, at: Duration) {
        self.sealed.push_back(Sealed { last, covers, seconds, at, kind: Kind::Lapse });
    }

    /// Sends the first message of every line that has none under way, unless a lapse that is not stored is before it.
    pub(super) fn send(&mut self, mut ask: impl FnMut(Arc<Outgoing>, Option<Again>) -> RequestId) {
        let before_lapse = self.sealed.iter().take_while(|sealed| sealed.kind != Kind::Lapse);
        let up_to = before_lapse.filter_map(|sealed| sealed.last).last();
        for line in self.lines.values_mut() {
            let Some(first) = line.front_mut().filter(|first| Some(first.prefix) <= up_to) else { continue };
            if let State::Waits(again) = &mut first.state {
                let again = again.take();
                let tries = again.as_ref().map_or(0, |again| again.tries.saturating_add(1));
                let id = ask(Arc::clone(&first.message), again);
                first.state = State::UnderWay { id, tries };
            }
        }
    }

    /// A message was acknowledged, or is to be sent again. One that was given up is not awaited.
    pub(super) fn answered(&mut self, id: RequestId, outcome: Outcome<()>) {
        let awaited = |line: &&mut VecDeque<Waiting>| matches!(line.front(), Some(Waiting { state: State::UnderWay { id: awaited, .. }, .. }) if *awaited == id);
        let Some(line) = self.lines.values_mut().find(awaited) else { return };
        let Some(first) = line.front_mut() else { return };
        match (outcome, &first.state) {
            (Err(fault), State::UnderWay { tries, .. }) => {
                first.state = State::Waits(Some(Again { fault, tries: *tries }));
            }
            _ => {
                let prefix = first.prefix;
                self.bytes -= first.message.value.len();
                let partition = first.message.partition;
                line.pop_front();
                if line.is_empty() {
                    self.lines.remove(&partition);
                }
                self.acknowledged(prefix);
            }
        }
    }

    fn acknowledged(&mut self, prefix: Sequence) {
        let of = self.sealed.iter_mut().find(|sealed| sealed.last == Some(prefix));
        if let Some(Kind::Prefix { unacknowledged }) = of.map(|sealed| &mut sealed.kind) {
            *unacknowledged -= 1;
        }
    }

    /// Takes the prefix at the head once all of it is acknowledged: up to where, and what it covers.
    pub(super) fn pop_acknowledged(&mut self) -> Option<(Option<Sequence>, UnixMillis)> {
        let done = self.sealed.pop_front_if(|sealed| sealed.kind == Kind::Prefix { unacknowledged: 0 })?;
        Some((done.last, done.covers))
    }

    /// The lapse at the head, if one is: it has to be stored before anything behind it counts as fed.
    pub(super) fn lapse_at_head(&self) -> Option<Seconds> {
        self.sealed.front().filter(|sealed| sealed.kind == Kind::Lapse).map(|sealed| sealed.seconds)
    }

    /// The lapse at the head is stored.
    pub(super) fn lapse_stored(&mut self) {
        if let Some(Sealed { kind: kind @ Kind::Lapse, .. }) = self.sealed.front_mut() {
            *kind = Kind::Prefix { unacknowledged: 0 };
        }
    }

    /// Drops everything that waits, and puts one lapse in its place, behind the lapse at the head if that is being `stored`.
    /// Messages under way may land: they are of the lapse.
    pub(super) fn give_up(&mut self, stored: bool, now: Duration) -> Option<Seconds> {
        let from = usize::from(stored);
        let given_up: Vec<Sealed> = self.sealed.drain(from.min(self.sealed.len())..).collect();
        let seconds = given_up.iter().map(|sealed| sealed.seconds).reduce(Seconds::and)?;
        let last = given_up.iter().filter_map(|sealed| sealed.last).max();
        let covers = given_up.iter().map(|sealed| sealed.covers).max().unwrap_or_default();
        self.push_lapse(seconds, last, covers, now);
        self.lines.clear();
        self.bytes = 0;
        Some(seconds)
    }

    /// When the first prefix was sealed whose messages are not all acknowledged.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let waits = |sealed: &&Sealed| matches!(sealed.kind, Kind::Prefix { unacknowledged: 1.. });
        self.sealed.iter().find(waits).map(|sealed| sealed.at)
    }

    /// When the latest record that waits was written.
    pub(super) fn newest(&self) -> UnixMillis {
        self.sealed.iter().map(|sealed| sealed.covers).max().unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sealed.is_empty()
    }
}
