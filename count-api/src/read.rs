//! Reads counts for the routes. [`Reader`] looks in this process's memory (`local.rs`), then in the shared cache, then
//! in the table (`layers.rs`). It keeps each number together with the standing of its partition, which says up to when
//! all changes are counted. The standing was taken before the number was read; `number.rs` says what an answer may then
//! claim. Where there are several Regions, a counter has an entry in each, and an answer is their sum (`entries.rs`). A
//! number is *outdone* if a read of the table would give a better one (`standings.rs`).
//!
//! Of the requests for one counter, one leads the read ([`ReadLead`]) and the others wait for it. The read is a task of
//! its own: it goes on if a client leaves, so clients with less patience than a slow table find their count when they
//! come back.

mod cache;
mod entries;
mod gate;
mod known;
mod layers;
mod local;
mod negative;
mod number;
mod standings;
mod table;
mod timing;

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{Connection, Recounts};
use tally_core::cached::Cache;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, ShardCount};
use tally_core::time::UnixMillis;
use tally_service::{Host, Stage};
use tokio::task::JoinSet;

pub use cache::SharedCache;
pub use entries::Entries;
pub use gate::TableGate;
pub use known::Known;
pub use layers::Layers;
pub use local::{Found, Kept, Local, ReadLead};
pub use negative::{Negatives, Recounter};
pub use number::{Beside, Number};
pub use standings::{FollowStandings, Standings, Whole};
pub use table::{AskTable, Table};
pub use timing::Timing;

use gate::no_answer;

pub use crate::answer::Answer;
use crate::args::Config;
use crate::definitions::FollowDefinitions;
use crate::error::{Problem, Result};
use crate::metrics::ReadCounters;
use crate::value::Rendered;

/// The most reads under way at once; more are refused. The table's gate lets far fewer through.
const AT_ONCE: usize = 4_096;

/// A counter as it was read in the table.
pub struct Detailed {
    /// The answer over all Regions.
    pub answer: Answer,
    /// The answer of each Region that has a name, this one first.
    pub regions: Vec<(String, Answer)>,
    /// The whole counter of this Region, if it is there.
    pub counter: Option<Counter>,
}

/// Reads counts. Clones share everything; dropping the last one ends the reads under way.
#[derive(Clone)]
pub struct Reader(Arc<Shared>);

struct Shared {
    local: Local,
    layers: Arc<Layers>,
    reads: Mutex<JoinSet<()>>,
}

impl Reader {
    /// Waits for the first read of the standings, and spawns the tasks that work for reads. `shards` and `definitions`
    /// are the deployment's; `whole` tells whether all tables are those of the deployment.
    ///
    /// # Errors
    /// A fault that does not pass, or a stop.
    pub async fn open(
        config: &Config,
        tables: &Connection,
        cache: Option<Arc<dyn Cache>>,
        shards: ShardCount,
        definitions: FollowDefinitions,
        whole: Whole,
        host: &Host,
    ) -> anyhow::Result<Self> {
        let follow = FollowStandings::begin(config, tables, definitions, whole, host).await?;
        let counters = Arc::new(Counters::new(tables));
        let gate = TableGate::new(config.table_concurrency, config.table_budget);
        let table = Table::new(Arc::clone(&counters), Arc::new(gate));
        let (negatives, recounter) = Negatives::new(counters, Recounts::new(tables), shards, host.clock());
        let layers = Layers {
            cache: cache.map(|cache| SharedCache::new(cache, config.cache_budget)),
            table: table.clone(),
            standings: follow.standings(),
            negatives,
            counters: ReadCounters::default(),
        };
        let ask = AskTable { table, clock: host.clock(), readiness: host.readiness().clone() };
        host.spawn(Stage::Support, "asking", ask);
        host.spawn(Stage::Support, "standings", follow);
        host.spawn(Stage::Output, "recounter", recounter);
        let local = Local::new(config.local_posts, config.local_ttl);
        Ok(Self(Arc::new(Shared { local, layers: Arc::new(layers), reads: Mutex::default() })))
    }

    /// Returns the standings, which answers depend on.
    pub fn standings(&self) -> &Standings {
        &self.0.layers.standings
    }

    /// Returns the gate before the tables.
    pub fn gate(&self) -> Arc<TableGate> {
        Arc::clone(&self.0.layers.table.gate)
    }

    /// Returns the current answer for `id`, and which layers it came from.
    pub async fn count(&self, id: &CounterId) -> Result<(Answer, Timing)> {
        let (kept, timing) = self.find(std::slice::from_ref(id)).remove(0).timed().await?;
        Ok((self.answer(id, &kept), timing))
    }

    /// Returns the current answer for `id` as bytes, and which layers it came from.
    pub async fn rendered(&self, id: &CounterId) -> Result<(Rendered, Timing)> {
        let (kept, timing) = self.find(std::slice::from_ref(id)).remove(0).timed().await?;
        let answer = self.answer(id, &kept);
        Ok((kept.own.rendered(&answer, |answer| Rendered::new(&id.post, answer.clone())), timing))
    }

    /// Returns the bytes of an answer that was rendered before, and the time now, if the count is in memory and its
    /// answer has not changed. Returns `None` also where there are other Regions; [`rendered`](Self::rendered) reads
    /// their entries.
    pub fn rendered_before(&self, id: &CounterId) -> Option<(Rendered, UnixMillis)> {
        let Layers { standings, counters, .. } = &*self.0.layers;
        let now = standings.now();
        let kept = self.0.local.get(id, now)?;
        let answer = standings.answer_unless_outdone(id, &kept.number, now.wall)?;
        let rendered = kept.rendered_before(&answer)?;
        counters.local.increment(1);
        Some((rendered, now.wall))
    }

    /// Returns the current answers for `ids`, in their order, and which layers they came from. One read fetches all
    /// those that are neither in memory nor being read.
    pub async fn counts(&self, ids: &[CounterId]) -> (Vec<Result<Answer>>, Timing) {
        let read = join_all(self.find(ids).into_iter().map(Entries::timed)).await;
        let timing = read.iter().flatten().fold(Timing::default(), |all, (_, timing)| all.and(*timing));
        let judged = ids.iter().zip(read).map(|(id, read)| read.map(|(kept, _)| self.answer(id, &kept)));
        (judged.collect(), timing)
    }

    /// Returns the numbers of `ids`, for a caller that makes answers of them later.
    pub async fn read(&self, ids: &[CounterId]) -> Vec<Result<Entries<Number>>> {
        let found = self.find(ids).into_iter().map(Entries::timed);
        let kept = join_all(found).await.into_iter();
        kept.map(|kept| kept.map(|(kept, _)| kept.map(|kept| kept.number.clone()))).collect()
    }

    /// Reads the counter `id` in the table.
    pub async fn detailed(&self, id: &CounterId) -> Result<Detailed> {
        let Layers { standings, table, .. } = &*self.0.layers;
        let known = standings.known();
        let all: Vec<CounterId> = std::iter::once(id.clone()).chain(known.others(id)).collect();
        let read = table.read(&all).await?;
        let now = standings.now().wall;
        let counter = |id: &CounterId| read.counters.get(id).cloned().transpose().map_err(|fault| no_answer(&fault));
        let number = |id: &CounterId| {
            let beside = known.beside(id, known.of(id).cloned());
            Ok::<_, Problem>(Number::read(counter(id)?.as_ref(), &read, beside, now))
        };
        let others = all[1..].iter().map(|id| Ok((id.clone(), number(id)?)));
        let numbers = Entries { own: number(id)?, others: others.collect::<Result<_>>()? };
        let answers = standings.answers(id, &numbers);
        let named = answers.named(known.name()).into_iter().filter(|(name, _)| !name.is_empty());
        let regions = named.map(|(name, answer)| (name.to_owned(), answer.clone())).collect();
        Ok(Detailed { answer: answers.sum(id.name.kind(), known.name()), regions, counter: counter(id)? })
    }

    fn answer(&self, id: &CounterId, kept: &Entries<Arc<Kept>>) -> Answer {
        self.0.layers.standings.answer(id, &kept.map(|kept| &kept.number))
    }

    /// Returns where each entry of `ids` is, and begins the reads that this caller leads.
    fn find(&self, ids: &[CounterId]) -> Vec<Entries<Found>> {
        let Layers { standings, counters, .. } = &*self.0.layers;
        let (known, now, mut leads) = (standings.known(), standings.now(), Vec::new());
        let mut find = |id: &CounterId| {
            let outdone = |number: &Number| standings.outdoes(id, number, &known, now.wall);
            self.0.local.find(id, now, outdone, &mut leads)
        };
        let found: Vec<_> = ids.iter().map(|id| known.entries(id, &mut find)).collect();
        counters.local.increment(found.iter().flat_map(Entries::all).filter(|found| found.is_kept()).count() as u64);
        self.begin(leads);
        found
    }

    /// Starts a read of `leads`. If too many are under way, their waiters get [`Problem::Busy`].
    fn begin(&self, leads: Vec<ReadLead>) {
        if leads.is_empty() {
            return;
        }
        let mut reads = self.0.reads.lock();
        // A read that panicked has been logged by the panic hook, and its leads were dropped.
        while reads.try_join_next().is_some() {}
        if reads.len() < AT_ONCE {
            let layers = Arc::clone(&self.0.layers);
            reads.spawn(async move { layers.read(leads).await });
        } else {
            drop(reads);
            leads.into_iter().for_each(|lead| lead.finish(Err(Problem::Busy), Timing::default()));
        }
    }
}
