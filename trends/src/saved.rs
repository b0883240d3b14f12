//! What a disk keeps of a partition's log: its sums, stretch by stretch, so that a start reads them in place of the records. How they
//! are made and read is here, and what stands in a file; where files are is the disk's.

mod bytes;
mod disk;

use std::sync::Arc;

use tally_core::Map;
use tally_core::fence::{Offset, TopicId};
use tally_core::ids::{Ordinal, PostId, Sequence};
use tally_core::ledger::{Change, Filter};
use tally_core::time::UnixMillis;

use crate::fold::gains_of;
use crate::{Place, Window};

pub use disk::{Disk, try_folder};

/// So many sums a stretch has at most.
const MOST: usize = 1 << 20;

/// What the records of a log between two positions come to. It is never changed: neither are they.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What is known of it before it is read.
    pub about: About,
    /// The last record that was counted of each stream shard, at its end.
    pub(crate) marks: Vec<(Ordinal, Sequence)>,
    /// In the order in which they were met.
    pub(crate) places: Vec<Place>,
    pub(crate) gains: Vec<Gain>,
}

/// What a subject gained in the seconds of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gain {
    /// The number of its place.
    pub(crate) place: u32,
    pub(crate) subject: PostId,
    /// The last second of the bucket.
    pub(crate) second: u64,
    pub(crate) gained: i64,
}

/// What is known of a stretch before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct About {
    /// The offset of its first record,
    pub from: u64,
    /// and of the first one behind it.
    pub to: u64,
    /// Nothing in it is of a later second.
    pub newest: u64,
    /// When its last record was written.
    pub until: u64,
    /// The checksum of that record.
    pub last: u32,
}

/// What a disk has of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Which topic it is of.
    pub topic: TopicId,
    /// How many seconds a bucket has.
    pub bucket: u64,
    /// The stretches, each from where the one before it ends.
    pub stretches: Vec<About>,
}

/// A stretch that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Which topic it is of.
    pub topic: TopicId,
    /// How many seconds a bucket has.
    pub bucket: u64,
    /// It follows on nothing that was kept before.
    pub is_first: bool,
    /// What was written before this is not needed any more.
    pub needed: UnixMillis,
    /// The stretch.
    pub stretch: Arc<Stretch>,
}

/// How many seconds buckets have that are parts of every window's.
pub fn bucket_of(windows: &[Window]) -> u64 {
    let greatest = |a: u64, b: u64| std::iter::successors(Some((a, b)), |(a, b)| (*b > 0).then(|| (*b, a % b))).last();
    windows.iter().map(|window| window.bucket_seconds()).fold(0, |a, b| greatest(a, b).map_or(b, |(found, _)| found))
}

/// Of how many milliseconds of the log a stretch is: of a bucket of the longest window, and of ten seconds at least.
pub fn length_of(windows: &[Window]) -> u64 {
    windows.iter().map(|window| window.bucket_seconds()).max().unwrap_or_default().max(10) * 1000
}

/// The checksum of a record.
pub fn checksum(value: Option<&[u8]>) -> u32 {
    crc32fast::hash(value.unwrap_or_default())
}

impl Saved {
    /// The stretches that stand for the records from `position` on, as far as they go: none is of a second behind `moment`, nor of
    /// records that the log with this end does not have. Empty where anything is not as it has to be.
    pub(crate) fn usable(
        &self,
        topic: &TopicId,
        bucket: u64,
        position: Offset,
        end: Offset,
        moment: u64,
    ) -> Vec<About> {
        let follow = self.stretches.windows(2).all(|pair| pair[0].to == pair[1].from);
        let are_some = self.stretches.iter().all(|about| about.from < about.to);
        if self.topic != *topic || self.bucket != bucket || !follow || !are_some {
            return Vec::new();
        }
        let needed = self.stretches.iter().skip_while(|about| about.to <= position.0);
        let usable: Vec<About> =
            needed.take_while(|about| about.newest <= moment && about.to <= end.0).copied().collect();
        if usable.first().is_some_and(|first| first.from <= position.0) { usable } else { Vec::new() }
    }
}

/// A stretch that is being read.
#[derive(Clone, Debug)]
pub(crate) struct Summing {
    from: Offset,
    bucket: u64,
    /// When its first record was written.
    began: Option<UnixMillis>,
    newest: u64,
    numbers: Map<Place, u32>,
    places: Vec<Place>,
    gains: Map<(u32, u64, PostId), i64>,
}

impl Summing {
    pub(crate) fn new(from: Offset, bucket: u64) -> Self {
        let (numbers, gains) = (Map::default(), Map::default());
        Self { from, bucket, began: None, newest: 0, numbers, places: Vec::new(), gains }
    }

    /// Takes what counts of a record.
    pub(crate) fn add(&mut self, change: &Change) {
        let bucket = change.second.saturating_sub(1) / self.bucket;
        self.newest = self.newest.max((bucket + 1) * self.bucket);
        for (region, gained) in gains_of(change).into_iter().flatten() {
            let place = Place { counter: change.counter.clone(), region: region.cloned() };
            let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
            let number = *self.numbers.entry(place).or_insert_with_key(|place| {
                self.places.push(place.clone());
                next
            });
            let sum = self.gains.entry((number, bucket, change.subject.clone())).or_default();
            *sum = sum.saturating_add(gained);
        }
    }

    /// Whether it ends with a record that was written `at`: a stretch is of `every` so many milliseconds.
    pub(crate) fn ends(&mut self, at: UnixMillis, every: u64) -> bool {
        let began = *self.began.get_or_insert(at);
        at.0 / every != began.0 / every || self.gains.len() >= MOST
    }

    /// The stretch up to behind the record `last`.
    pub(crate) fn end(self, to: Offset, until: UnixMillis, last: u32, filter: &Filter) -> Stretch {
        let Self { from, bucket, newest, places, gains, .. } = self;
        let gain = |((place, nth, subject), gained)| Gain { place, subject, second: (nth + 1) * bucket, gained };
        Stretch {
            about: About { from: from.0, to: to.0, newest, until: until.0, last },
            marks: filter.marks().collect(),
            places,
            gains: gains.into_iter().map(gain).collect(),
        }
    }
}
