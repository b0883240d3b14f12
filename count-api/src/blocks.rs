//! Ids that lists of what is trending leave out, as a compacted topic has them: an id is a record's key, blocked while its last value
//! is not empty.

use std::hash::BuildHasher;
use std::sync::Arc;

use tally_core::Set;
use tally_core::ids::PostId;
use tally_core::ports::TopicReader;
use tally_core::ports::log::Records;
use tally_service::{Clock, Stop, Task};

use crate::followed::Followed;
use crate::metrics::BLOCKED;
use crate::tops::Tops;

/// Which ids are blocked.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    ids: Set<PostId>,
    /// The hashes of all of them added up: processes that have read the same have the same.
    version: u64,
    /// The topic was not read to its end yet.
    unknown: bool,
}

impl Blocked {
    pub(crate) fn has(&self, id: &PostId) -> bool {
        self.ids.contains(id)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.unknown
    }

    pub(crate) fn forget(&mut self) {
        *self = Self { unknown: true, ..Self::default() };
    }

    /// Takes ids, each with whether it is blocked, and whether that was all there is. Whether anything is another now.
    pub(crate) fn take(&mut self, read: Vec<(PostId, bool)>, is_whole: bool) -> bool {
        let mut differs = is_whole && std::mem::take(&mut self.unknown);
        for (id, is_blocked) in read {
            let hash = self.ids.hasher().hash_one(&id);
            if is_blocked && self.ids.insert(id.clone()) {
                self.version = self.version.wrapping_add(hash);
                differs = true;
            } else if !is_blocked && self.ids.remove(&id) {
                self.version = self.version.wrapping_sub(hash);
                differs = true;
            }
        }
        BLOCKED.gauge(&[]).set(self.ids.len() as f64);
        differs
    }
}

/// The task that reads the topic.
pub(crate) struct FollowBlocks {
    followed: Followed,
    tops: Tops,
}

impl FollowBlocks {
    pub(crate) fn new(reader: Arc<dyn TopicReader>, tops: Tops, clock: Clock) -> Self {
        tops.wait_for_blocks();
        Self { followed: Followed::new(reader, clock), tops }
    }
}

/// What is no id is in no list.
fn ids(records: &Records) -> Vec<(PostId, bool)> {
    let id = |key: Option<&[u8]>| PostId::new(std::str::from_utf8(key?).ok()?).ok();
    let read = records.iter().filter_map(|record| Some((id(record.key)?, record.value)));
    read.map(|(id, value)| (id, value.is_some_and(|value| !value.is_empty()))).collect()
}

impl Task for FollowBlocks {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let Self { followed, tops } = self;
        let take = |records: Option<&Records>, is_whole| tops.block(records.map(ids).unwrap_or_default(), is_whole);
        followed.run(stop, "blocked ids", take).await
    }
}
