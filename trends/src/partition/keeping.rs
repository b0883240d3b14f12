//! What a partition keeps on a disk, and how it begins with it: instead of records of the log it takes their sums, and goes on behind
//! them once the log says that it is the one that they are of.

use std::collections::VecDeque;
use std::sync::Arc;

use tally_core::fence::Offset;
use tally_core::ledger::Change;
use tally_core::ports::log::Record;

use super::{Effect, Partition, Stage};
use crate::saved::{About, Keep, Saved, Stretch, Summing, bucket_of, checksum};

/// A partition's part in what a disk keeps.
#[derive(Debug)]
pub(super) struct Keeping {
    /// Stretches are of so many milliseconds of the log.
    every: u64,
    /// How many seconds their buckets have.
    bucket: u64,
    /// What there is to begin with.
    saved: Option<Saved>,
    /// What is to be loaded of it.
    loading: VecDeque<About>,
    /// The record before what was loaded ends, and its checksum: the log has to have it.
    check: Option<(Offset, u32)>,
    /// What is being read.
    open: Option<Summing>,
    /// It follows on nothing that is kept.
    is_first: bool,
}

impl Keeping {
    /// Nothing of before is of use any more.
    pub(super) fn forget(&mut self) {
        (self.saved, self.check, self.open) = (None, None, None);
        self.loading.clear();
    }

    fn begin(&mut self, position: Offset, is_first: bool) {
        (self.open, self.is_first) = (Some(Summing::new(position, self.bucket)), is_first);
    }

    pub(super) fn add(&mut self, change: &Change) {
        if let Some(open) = &mut self.open {
            open.add(change);
        }
    }
}

impl Partition {
    /// The same with a disk, and what it has. A stretch of the log is kept `every` so many milliseconds of it.
    #[must_use]
    pub fn keeping(mut self, saved: Option<Saved>, every: u64) -> Self {
        let bucket = bucket_of(&self.setup.windows);
        let (loading, check, open) = (VecDeque::new(), None, None);
        self.keeping = Some(Keeping { every, bucket, saved, loading, check, open, is_first: true });
        self
    }

    /// Begins at the position, unless there is something to be loaded first.
    pub(super) fn load(&mut self, effects: &mut Vec<Effect>) -> bool {
        let (Some(keeping), Some(topic)) = (&mut self.keeping, &self.topic) else { return false };
        let end = self.goals.back().map_or(Offset(0), |(_, end)| *end);
        let saved = keeping.saved.take();
        let usable = saved.map(|saved| saved.usable(topic, keeping.bucket, self.position, end, self.fold.moment()));
        keeping.loading = usable.unwrap_or_default().into();
        let Some(first) = keeping.loading.front() else {
            keeping.begin(self.position, true);
            return false;
        };
        effects.push(Effect::Load(*first));
        self.stage = Stage::Loading;
        true
    }

    pub(super) fn loaded(&mut self, stretch: Option<&Stretch>, effects: &mut Vec<Effect>) {
        let (Stage::Loading, Some(keeping)) = (self.stage, &mut self.keeping) else { return };
        let wanted = keeping.loading.pop_front();
        let Some(stretch) = stretch.filter(|stretch| Some(stretch.about) == wanted) else {
            return self.begin_anew(effects);
        };
        self.fold.restore(stretch);
        if let Some(next) = keeping.loading.front() {
            return effects.push(Effect::Load(*next));
        }
        let About { to, last, .. } = stretch.about;
        keeping.begin(Offset(to), false);
        // The end that was asked for lies behind this record: no moment has come before it is read.
        self.position = Offset(to - 1);
        keeping.check = Some((self.position, last));
        self.stage = Stage::Opening { lacks: None };
        effects.push(Effect::Open(self.position));
    }

    /// Whether a record was counted by what was loaded. It is the first one to be read, and has to be the very same.
    pub(super) fn is_loaded(&mut self, record: &Record<'_>, effects: &mut Vec<Effect>) -> bool {
        let Some(check) = self.keeping.as_mut().and_then(|keeping| keeping.check.take()) else { return false };
        if check == (record.offset, checksum(record.value)) {
            self.position = record.offset.next();
        } else {
            self.begin_anew(effects);
        }
        true
    }

    /// A record was taken: with some of them a stretch ends.
    pub(super) fn keep(&mut self, record: &Record<'_>, effects: &mut Vec<Effect>) {
        let (Some(keeping), Some(topic)) = (&mut self.keeping, &self.topic) else { return };
        let every = keeping.every;
        let Some(open) = keeping.open.take_if(|open| open.ends(record.at, every)) else { return };
        let stretch = open.end(self.position, record.at, checksum(record.value), self.fold.filter());
        let needed = super::needed(&self.setup.windows, self.fold.moment());
        let (topic, bucket, is_first) = (topic.clone(), keeping.bucket, keeping.is_first);
        effects.push(Effect::Keep(Keep { topic, bucket, is_first, needed, stretch: Arc::new(stretch) }));
        keeping.begin(self.position, false);
    }
}
