//! A change stream whose listings and shards misbehave on demand, over the twin of a well-behaved one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tally_adapters::memory::Streams;
use tally_core::ids::{StreamLabel, StreamShardId};
use tally_core::lineage::Listed;
use tally_core::ports::{ChangeStream, Iterator, Position, Records, StreamFault, StreamInfo};

/// The stream. Clones misbehave alike.
#[derive(Clone)]
pub(crate) struct Doctored {
    stream: Streams,
    ills: Arc<Mutex<Ills>>,
}

/// What is wrong with it.
#[derive(Default)]
pub(crate) struct Ills {
    /// Shards that listings leave out.
    pub(crate) hidden: BTreeSet<StreamShardId>,
    /// Shards that are listed and gone when they are read.
    pub(crate) dead: BTreeSet<StreamShardId>,
    /// The table has no stream any more.
    pub(crate) off: bool,
    /// Shards are listed without their parents, and go on for ever: a child is read beside its parent.
    pub(crate) orphaned: bool,
    /// Pages that come empty although there are records, one in so many.
    pub(crate) holes: Option<u32>,
    pages: u32,
}

impl Doctored {
    pub(crate) fn new(stream: Streams) -> Self {
        Self { stream, ills: Arc::default() }
    }

    pub(crate) fn ills(&self) -> MutexGuard<'_, Ills> {
        self.ills.lock().unwrap()
    }

    fn listed(&self, shards: Vec<Listed>) -> Vec<Listed> {
        let ills = self.ills();
        let shards = shards.into_iter().filter(|shard| !ills.hidden.contains(&shard.id));
        shards.map(|shard| Listed { parent: shard.parent.filter(|_| !ills.orphaned), ..shard }).collect()
    }
}

#[async_trait]
impl ChangeStream for Doctored {
    async fn info(&self) -> Result<StreamInfo, StreamFault> {
        if self.ills().off {
            return Err(StreamFault::Off("likes".to_owned()));
        }
        self.stream.info().await
    }

    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault> {
        Ok(self.listed(self.stream.shards(label).await?))
    }

    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault> {
        let children = self.stream.children(label, parent).await?;
        Ok(children.map(|children| self.listed(children)))
    }

    async fn iterator(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        position: Position,
    ) -> Result<Iterator, StreamFault> {
        if self.ills().dead.contains(shard) {
            return Err(StreamFault::Gone);
        }
        let Iterator(at) = self.stream.iterator(label, shard, position).await?;
        Ok(Iterator(format!("{shard} {at}")))
    }

    async fn records(&self, iterator: &Iterator, limit: u32) -> Result<Records, StreamFault> {
        let (shard, at) = iterator.0.split_once(' ').ok_or(StreamFault::Expired)?;
        let (is_dead, is_hole, orphaned) = {
            let mut ills = self.ills();
            ills.pages += 1;
            let is_hole = ills.holes.is_some_and(|one_in| ills.pages.is_multiple_of(one_in));
            (ills.dead.contains(&StreamShardId::from(shard)), is_hole, ills.orphaned)
        };
        if is_dead {
            return Err(StreamFault::Gone);
        }
        if is_hole {
            return Ok(Records { records: Vec::new(), next: Some(iterator.clone()) });
        }
        let page = self.stream.records(&Iterator(at.to_owned()), limit).await?;
        let next = page.next.map(|Iterator(at)| Iterator(format!("{shard} {at}")));
        Ok(Records { next: next.or_else(|| orphaned.then(|| iterator.clone())), ..page })
    }
}
