//! Part of the model of two Regions, A and B: the processes in B that read the counts that A has published, and store
//! these counts and how far they have read.

use tally_core::regions::{LAG, Remote, RemoteFlush, RemotePosition};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, TopicId};

use super::log::counter;
use super::publisher::{Record, readable, region};
use super::{Rule, State, Step, World, time};
use crate::intern::Number;

/// A reader: what it has read, whether it has to flush some of that, and the entries and the position that it still has
/// to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reader {
    remote: Number,
    is_dirty: bool,
    entries: Vec<(usize, Number)>,
    position: Option<Number>,
}

/// Returns the position where the first reader begins.
pub(super) fn start() -> RemotePosition {
    RemotePosition::start(TopicId("t".into()), Offset(0))
}

fn index(offset: Offset) -> usize {
    usize::try_from(offset.0).expect("a topic is short")
}

impl World {
    /// Returns a reader that goes on from a position.
    pub(super) fn reader(&self, position: RemotePosition) -> Reader {
        let remote = self.remotes.number(Remote::new(region(), position));
        Reader { remote, is_dirty: false, entries: Vec::new(), position: None }
    }

    pub(super) fn read(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.tick < self.begins {
            return;
        }
        for (at, reader) in state.readers.iter().enumerate() {
            self.write(state, at, next);
            if !reader.entries.is_empty() || reader.position.is_some() {
                continue;
            }
            for (nth, record) in self.waiting(state, at) {
                let after = state.after(|after| self.takes(after, at, nth, record));
                next.push((Step("reads", at), after));
            }
            if reader.is_dirty {
                next.push((Step("flushes", at), state.after(|after| self.flushes(after, at))));
            }
        }
        if state.left.replacements > 0 {
            next.push((Step("is replaced", 0), state.after(|after| self.replaces(after))));
        }
    }

    /// Lets another reader begin at the stored position.
    pub(super) fn replaces(&self, state: &mut State) {
        state.left.replacements -= 1;
        let position = (*self.positions.get(state.position)).clone();
        state.readers.push(self.reader(position));
    }

    /// Returns the records that a reader may read next, each with its index in `mirror`.
    fn waiting(&self, state: &State, at: usize) -> Vec<(usize, Record)> {
        let from = index(self.remotes.get(state.readers[at].remote).next()) - state.base;
        readable(self, &state.mirror, from, state.tick)
    }

    fn takes(&self, state: &mut State, at: usize, nth: usize, record: Record) {
        let message = self.message(state, record);
        let mut remote = (*self.remotes.get(state.readers[at].remote)).clone();
        let position = remote.clone().flush().position;
        let mut now = time(state.tick);
        if position.said == UnixMillis(0) && !self.obeys(Rule::DoubtsWhatWasThere) {
            remote = Remote::new(region(), RemotePosition { said: now, ..position });
        } else if position.said > UnixMillis(0) && !self.obeys(Rule::DoubtsAfterStandstill) {
            // The mutant does not notice how much time has passed.
            now = now.min(position.said.plus(LAG / 2));
        }
        let offset = u64::try_from(state.base + nth).expect("a topic is short");
        remote.take(Offset(offset), now, message).expect("a message of A");
        let reader = &mut state.readers[at];
        (reader.remote, reader.is_dirty) = (self.remotes.number(remote), true);
    }

    fn flushes(&self, state: &mut State, at: usize) {
        let reader = &mut state.readers[at];
        let RemoteFlush { entries, position } = self.remotes.update(&mut reader.remote, Remote::flush);
        let entry = |id| (0..2).position(|nth| counter(nth).in_region(&region()) == id).expect("one of two counters");
        reader.entries = entries.into_iter().map(|(id, value)| (entry(id), self.values.number(value))).collect();
        (reader.is_dirty, reader.position) = (false, Some(self.positions.number(position)));
    }

    /// Writes the reader's next entry, or the position behind all entries.
    fn write(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        let Reader { entries, position, .. } = &state.readers[at];
        if !entries.is_empty() {
            next.push((Step("puts an entry", at), state.after(|after| self.puts_entry(after, at))));
        }
        if position.is_some() && (entries.is_empty() || !self.obeys(Rule::EntriesFirst)) {
            next.push((Step("stores its position", at), state.after(|after| after.stores_position(at))));
        }
    }

    /// Puts an entry where the stored one is absent or has an earlier version.
    fn puts_entry(&self, state: &mut State, at: usize) {
        let (nth, value) = state.readers[at].entries.remove(0);
        let (held, new) = (*self.values.get(state.entries[nth]), *self.values.get(value));
        let is_older = new.version < held.version;
        let put = match self.removed {
            Some(Rule::NewerWins) if !is_older && held.version.stored() > 0 => held,
            Some(Rule::OlderRefused) if is_older => new,
            _ => held.later(new),
        };
        state.entries[nth] = self.values.number(put);
    }

    pub(super) fn reads_all(&self, state: &mut State) {
        let at = state.readers.len() - 1;
        while let Some((nth, record)) = self.waiting(state, at).pop() {
            self.takes(state, at, nth, record);
        }
        self.flushes(state, at);
        while !state.readers[at].entries.is_empty() {
            self.puts_entry(state, at);
        }
        state.stores_position(at);
    }

    /// Forgets what nobody reads any more, so that states that differ only by it are one.
    pub(super) fn forget(&self, state: &mut State) {
        if state.left.repeats == 0 {
            state.topic.drain(..state.copied);
            state.copied = 0;
        }
        let reading = state.readers.iter().map(|reader| self.remotes.get(reader.remote).next());
        let writing = state.readers.iter().filter_map(|reader| reader.position);
        let stored = writing.chain([state.position]).map(|position| self.positions.get(position).next);
        let least = reading.chain(stored).map(index).min().expect("there is a reader");
        let read = least.min(state.base + state.mirror.len()) - state.base;
        state.mirror.drain(..read);
        state.base += read;
    }
}

impl State {
    fn stores_position(&mut self, at: usize) {
        self.position = self.readers[at].position.take().expect("it is not stored yet");
    }
}
