//! The stream of changes as a recount reads it itself, from where the checkpoints stood: only as far as a counter that is
//! held against it has come, and only while looks need it.
//!
//! It is a help and no more. Where it cannot be had, because the records are gone, there are too many, or this process may
//! not read them, looks do without.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_core::audit::{Missing, Touched, Trail};
use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, RowKey, StreamLabel};
use tally_core::ports::{ChangeStream, Iterator, Records, StreamFault};
use tally_core::watermark::Watermarks;
use tokio::sync::Mutex;

use crate::store::Store;
use crate::stream_view::StreamView;

/// Records asked for at once: what the service allows.
const LIMIT: u32 = 1000;
/// Changes that one trail holds, and with how many it is not handed out any more.
const MOST: usize = 200_000;
const LATER: usize = MOST / 2;
/// Pages without a record in a row before a stream shard is taken for one that will not be read so far.
const EMPTIES: u32 = 60;
const BETWEEN_EMPTIES: Duration = Duration::from_millis(25);
/// Reads of one page that may fail.
const TRIES: u32 = 6;
/// How long none is begun after one that was lost.
const REST: Duration = Duration::from_secs(60);

/// The trails of one process.
pub(crate) struct Trails {
    stream: Arc<dyn ChangeStream>,
    store: Store,
    view: Arc<StreamView>,
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    followed: Option<Arc<Followed>>,
    /// None is begun before.
    not_before: Duration,
}

/// A trail, and how it is read.
pub(crate) struct Followed {
    label: StreamLabel,
    read: Mutex<Option<Read>>,
}

struct Read {
    trail: Trail,
    iterators: BTreeMap<Ordinal, Iterator>,
}

/// A trail cannot be read on.
struct Lost;

/// What a read of one page came to.
enum Page {
    Records(Records),
    Expired,
}

impl Trails {
    pub(crate) fn new(store: &Store, view: &Arc<StreamView>) -> Self {
        let (stream, view) = (Arc::clone(&store.ports.stream), Arc::clone(view));
        Self { stream, store: store.clone(), view, latest: Mutex::default() }
    }

    /// A trail that begins now or began before; `None` where none is to be had now.
    pub(crate) async fn begin(&self) -> anyhow::Result<Option<Arc<Followed>>> {
        let mut latest = self.latest.lock().await;
        if let Some(followed) = &latest.followed {
            // One that is being read is alive.
            let is_young = match followed.read.try_lock() {
                Ok(read) => read.as_ref().is_some_and(|read| read.trail.held() < LATER),
                Err(_) => true,
            };
            if is_young {
                return Ok(Some(Arc::clone(followed)));
            }
        }
        if self.store.calls.clock().reading().at < latest.not_before {
            return Ok(None);
        }
        let applied = self.view.recent().await?;
        let read = Read { trail: Trail::begin(&applied.lineage), iterators: BTreeMap::new() };
        let followed = Arc::new(Followed { label: applied.label.clone(), read: Mutex::new(Some(read)) });
        latest.followed = Some(Arc::clone(&followed));
        Ok(Some(followed))
    }

    /// What `followed` says of each row key and a counter with these watermarks, once it is read so far.
    pub(crate) async fn touched(
        &self,
        followed: &Followed,
        of: &[(RowKey, Watermarks)],
    ) -> anyhow::Result<Vec<Option<Touched>>> {
        let mut slot = followed.read.lock().await;
        let mut said = Vec::with_capacity(of.len());
        for (key, marks) in of {
            let Some(read) = slot.as_mut() else { break };
            if self.read_on(&followed.label, read, marks).await?.is_err() {
                *slot = None;
                self.latest.lock().await.not_before = self.store.calls.clock().reading().at + REST;
                break;
            }
            said.push(read.trail.touched(key, marks));
        }
        said.resize(of.len(), None);
        Ok(said)
    }

    /// Reads until the trail covers `marks`, as far as it can.
    async fn read_on(
        &self,
        label: &StreamLabel,
        read: &mut Read,
        marks: &Watermarks,
    ) -> anyhow::Result<Result<(), Lost>> {
        let mut empties = 0;
        while let Err(Missing::Unread(shards)) = read.trail.covers(marks) {
            let mut records = 0;
            for shard in shards {
                let Ok(page) = self.page(label, read, shard).await? else { return Ok(Err(Lost)) };
                let Page::Records(page) = page else {
                    read.iterators.remove(&shard);
                    continue;
                };
                records += page.records.len();
                if read.trail.take(shard, &page.records).is_err() {
                    return Ok(Err(Lost));
                }
                match page.next {
                    Some(next) => drop(read.iterators.insert(shard, next)),
                    None => read.trail.end(shard),
                }
            }
            empties = if records == 0 { empties + 1 } else { 0 };
            if empties > EMPTIES || read.trail.held() > MOST {
                tracing::debug!(empties, held = read.trail.held(), "the stream is not followed any more");
                return Ok(Err(Lost));
            }
            if records == 0 {
                self.store.calls.wait(BETWEEN_EMPTIES).await?;
            }
        }
        Ok(Ok(()))
    }

    /// The next page of `shard`.
    async fn page(&self, label: &StreamLabel, read: &mut Read, shard: Ordinal) -> anyhow::Result<Result<Page, Lost>> {
        let mut tries = 0;
        loop {
            let asked = match read.iterators.get(&shard) {
                Some(iterator) => self.stream.records(iterator, LIMIT).await.map(Page::Records),
                None => {
                    let Some((id, position)) = read.trail.position(shard) else { return Ok(Err(Lost)) };
                    match self.stream.iterator(label, id, position).await {
                        Ok(iterator) => {
                            read.iterators.insert(shard, iterator);
                            continue;
                        }
                        Err(fault) => Err(fault),
                    }
                }
            };
            match asked {
                Ok(page) => return Ok(Ok(page)),
                Err(StreamFault::Expired) => return Ok(Ok(Page::Expired)),
                Err(StreamFault::Fault(fault)) if fault.is_retryable() && tries < TRIES => {
                    self.store.calls.pause("read the stream", fault, &mut tries).await?;
                }
                Err(fault) => {
                    if let StreamFault::Fault(Fault::Fatal(reason)) = &fault {
                        tracing::warn!(reason, "the stream cannot be read here: counts that move need windows");
                    }
                    return Ok(Err(Lost));
                }
            }
        }
    }
}
