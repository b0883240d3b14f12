//! The stream's shards as the service lists them: asked for seldom enough for all readers of the stream, and shared by
//! whoever asks meanwhile. What a listing means is the registry's.

use std::sync::Arc;
use std::time::Duration;

use tally_core::ids::{StreamLabel, StreamShardId};
use tally_core::lineage::Listed;
use tally_core::ports::{ChangeStream, StreamFault};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The shortest time between two descriptions by one process: the service allows ten a second to all readers together.
const SPACING: Duration = Duration::from_millis(500);

/// The one way to a listing in this process. Clones share it.
#[derive(Clone)]
pub(crate) struct Directory(Arc<Shared>);

struct Shared {
    stream: Arc<dyn ChangeStream>,
    /// Held while the service is asked: others wait, and share the answer.
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    asked: Option<Instant>,
    listing: Option<Listing>,
}

struct Listing {
    label: StreamLabel,
    taken: Instant,
    shards: Arc<[Listed]>,
}

impl Latest {
    /// When the service may be asked again.
    fn next(&self) -> Option<Instant> {
        self.asked.map(|asked| asked + SPACING)
    }
}

impl Directory {
    pub(crate) fn new(stream: Arc<dyn ChangeStream>) -> Self {
        Self(Arc::new(Shared { stream, latest: Mutex::default() }))
    }

    /// Every shard of the stream, as listed no earlier than now.
    pub(crate) async fn shards(&self, label: &StreamLabel) -> Result<Arc<[Listed]>, StreamFault> {
        let now = Instant::now();
        let mut latest = self.0.latest.lock().await;
        // Somebody else may have asked for it while we waited.
        let fresh = latest.listing.as_ref().filter(|listing| listing.taken >= now && listing.label == *label);
        if let Some(listing) = fresh {
            return Ok(Arc::clone(&listing.shards));
        }
        if let Some(next) = latest.next() {
            sleep_until(next).await;
        }
        let taken = Instant::now();
        latest.asked = Some(taken);
        let shards: Arc<[Listed]> = self.0.stream.shards(label).await?.into();
        latest.listing = Some(Listing { label: label.clone(), taken, shards: Arc::clone(&shards) });
        Ok(shards)
    }

    /// The shards that continue `parent`: by a description of these alone while few ask, from a listing shared by all
    /// of them when many shards end at once.
    pub(crate) async fn children(
        &self,
        label: &StreamLabel,
        parent: &StreamShardId,
    ) -> Result<Vec<Listed>, StreamFault> {
        if let Ok(mut latest) = self.0.latest.try_lock()
            && latest.next().is_none_or(|next| next <= Instant::now())
        {
            latest.asked = Some(Instant::now());
            if let Some(children) = self.0.stream.children(label, parent).await? {
                return Ok(children);
            }
        }
        let shards = self.shards(label).await?;
        Ok(shards.iter().filter(|shard| shard.parent.as_ref() == Some(parent)).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use tally_core::ports::{Iterator, Position, Records, StreamInfo};

    use super::*;

    /// A stream of one parent and its child, that counts how often it is described.
    struct Counted {
        descriptions: AtomicU32,
        filters: bool,
    }

    impl Counted {
        async fn described(&self) -> Vec<Listed> {
            self.descriptions.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            let child = Listed { id: "c".into(), parent: Some("p".into()), ended: false };
            vec![Listed { id: "p".into(), parent: None, ended: true }, child]
        }
    }

    #[async_trait]
    impl ChangeStream for Counted {
        async fn info(&self) -> Result<StreamInfo, StreamFault> {
            unreachable!("nobody asks for it")
        }
        async fn shards(&self, _: &StreamLabel) -> Result<Vec<Listed>, StreamFault> {
            Ok(self.described().await)
        }
        async fn children(&self, _: &StreamLabel, _: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault> {
            if !self.filters {
                return Ok(None);
            }
            Ok(Some(self.described().await.split_off(1)))
        }
        async fn iterator(&self, _: &StreamLabel, _: &StreamShardId, _: Position) -> Result<Iterator, StreamFault> {
            unreachable!("nobody asks for it")
        }
        async fn records(&self, _: &Iterator, _: u32) -> Result<Records, StreamFault> {
            unreachable!("nobody asks for it")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_shards_that_end_at_once_find_their_children_in_a_few_descriptions() {
        for filters in [true, false] {
            let stream = Arc::new(Counted { descriptions: AtomicU32::new(0), filters });
            let directory = Directory::new(stream.clone());
            let (label, parent) = ("l".into(), "p".into());
            for found in join_all((0..100).map(|_| directory.children(&label, &parent))).await {
                assert_eq!(found.unwrap().len(), 1);
            }
            let described = stream.descriptions.load(Ordering::Relaxed);
            assert!(described <= 3, "{described} descriptions");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_is_never_older_than_the_question() {
        let stream = Arc::new(Counted { descriptions: AtomicU32::new(0), filters: true });
        let directory = Directory::new(stream.clone());
        let began = Instant::now();
        for asked in 1..=3 {
            directory.shards(&"l".into()).await.unwrap();
            assert_eq!(stream.descriptions.load(Ordering::Relaxed), asked);
        }
        assert!(began.elapsed() >= SPACING * 2);
    }
}
