//! A count, from the nearest place that has it: this process's memory, the shared cache, or the table. Each number is kept
//! together with the standing of its partition of the log `changes`, which was taken before the number was read; [`Number`]
//! says what that allows an answer to claim.
//!
//! Of all requests for one counter one reads and the others wait for it. The read is a task of its own: a client that
//! leaves does not end it, so clients with less patience than a slow table find their count when they come back.

mod breaker;
mod cache;
mod entries;
mod gate;
mod known;
mod layers;
mod local;
mod negative;
mod number;
mod path;
mod standings;
mod table;
mod timing;

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tally_core::fold::Counter;
use tally_core::ids::CounterId;
use tally_core::time::UnixMillis;
use thiserror::Error;
use tokio::task::JoinSet;

pub use cache::SharedCache;
pub use entries::Entries;
pub use gate::TableGate;
pub use known::Known;
pub use layers::Layers;
pub use local::{Found, Kept, Local, ReadLead};
pub use negative::{Negatives, Recounter};
pub use number::{Beside, Number};
pub use path::ReadPath;
pub use standings::{FollowStandings, Standings, Whole};
pub use table::{AskTable, Table};
pub use timing::Timing;

use gate::no_answer;

pub use crate::answer::Answer;
pub use crate::args::Bounds;
use crate::error::{LoggedCause, Problem};
use crate::value::Rendered;

/// Reads under way at once. More are refused: the table's gate lets far fewer through.
const AT_ONCE: usize = 4_096;

/// A counter as the table has it.
pub struct Detailed {
    /// Its answer, judged now.
    pub answer: Answer,
    /// The answer of each Region that has a name, this one first.
    pub regions: Vec<(String, Answer)>,
    /// The whole counter of this Region, if it is there.
    pub counter: Option<Counter>,
}

/// Why a number could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// As many reads of the table are under way as are allowed.
    #[error("as many reads of the table are under way as are allowed")]
    Busy,
    /// The table did not answer, or with a fault that passes.
    #[error("{}", .0.as_str())]
    Away(LoggedCause),
    /// The table will never answer this request.
    #[error("{}", .0.as_str())]
    Refused(LoggedCause),
}

impl From<NoAnswer> for Problem {
    fn from(fault: NoAnswer) -> Self {
        match fault {
            NoAnswer::Busy => Self::Busy,
            NoAnswer::Away(cause) => Self::StoreAway(cause),
            NoAnswer::Refused(cause) => Self::Internal(cause),
        }
    }
}

/// Reads counts. Clones share everything; when the last one is dropped, the reads under way end.
#[derive(Clone)]
pub struct Reader(Arc<Shared>);

struct Shared {
    local: Local,
    layers: Arc<Layers>,
    reads: Mutex<JoinSet<()>>,
}

impl Reader {
    /// A reader of `layers` that keeps in `local` what it read.
    pub fn new(local: Local, layers: Layers) -> Self {
        Self(Arc::new(Shared { local, layers: Arc::new(layers), reads: Mutex::default() }))
    }

    /// The count of `id`, judged now, and where it came from.
    pub async fn count(&self, id: &CounterId) -> Result<(Answer, Timing), NoAnswer> {
        let (kept, timing) = self.find(std::slice::from_ref(id)).remove(0).timed().await?;
        Ok((self.answer(id, &kept), timing))
    }

    /// The count of `id`, judged now, in the bytes of its answer, and where it came from.
    pub async fn rendered(&self, id: &CounterId) -> Result<(Rendered, Timing), NoAnswer> {
        let (kept, timing) = self.find(std::slice::from_ref(id)).remove(0).timed().await?;
        let answer = self.answer(id, &kept);
        Ok((kept.own.rendered(&answer, |answer| Rendered::new(&id.post, answer.clone())), timing))
    }

    /// The same, if the count is in memory and was answered in the same bytes before, and when that was found. Where there are other
    /// Regions their entries have to be found, too: that is left to the other way.
    pub fn rendered_before(&self, id: &CounterId) -> Option<(Rendered, UnixMillis)> {
        let Layers { standings, counters, .. } = &*self.0.layers;
        let now = standings.now();
        let kept = self.0.local.get(id, now)?;
        let answer = standings.answer_unless_outdone(id, &kept.number, now.wall)?;
        let rendered = kept.rendered_before(&answer)?;
        counters.local.increment(1);
        Some((rendered, now.wall))
    }

    /// The counts of `ids`, in their order, judged now, and where they came from. Those neither in memory nor being read are read
    /// together.
    pub async fn counts(&self, ids: &[CounterId]) -> (Vec<Result<Answer, NoAnswer>>, Timing) {
        let read = join_all(self.find(ids).into_iter().map(Entries::timed)).await;
        let timing = read.iter().flatten().fold(Timing::default(), |all, (_, timing)| all.and(*timing));
        let judged = ids.iter().zip(read).map(|(id, read)| read.map(|(kept, _)| self.answer(id, &kept)));
        (judged.collect(), timing)
    }

    /// The same as they arrived, for a caller that judges them when it answers.
    pub async fn read(&self, ids: &[CounterId]) -> Vec<Result<Entries<Number>, NoAnswer>> {
        let found = self.find(ids).into_iter().map(Entries::timed);
        let kept = join_all(found).await.into_iter();
        kept.map(|kept| kept.map(|(kept, _)| kept.map(|kept| kept.number.clone()))).collect()
    }

    /// The count of `id` as the table has it.
    pub async fn detailed(&self, id: &CounterId) -> Result<Detailed, NoAnswer> {
        let Layers { standings, table, .. } = &*self.0.layers;
        let known = standings.known();
        let all: Vec<CounterId> = std::iter::once(id.clone()).chain(known.others(id)).collect();
        let read = table.read(&all).await?;
        let now = standings.now().wall;
        let counter = |id: &CounterId| read.counters.get(id).cloned().transpose().map_err(|fault| no_answer(&fault));
        let number = |id: &CounterId| {
            let beside = known.beside(id, known.of(id).cloned());
            Ok::<_, NoAnswer>(Number::read(counter(id)?.as_ref(), &read, beside, now))
        };
        let others = all[1..].iter().map(|id| Ok((id.clone(), number(id)?)));
        let numbers = Entries { own: number(id)?, others: others.collect::<Result<_, NoAnswer>>()? };
        let answers = standings.answers(id, &numbers);
        let named = answers.named(known.name()).into_iter().filter(|(name, _)| !name.is_empty());
        let regions = named.map(|(name, answer)| (name.to_owned(), answer.clone())).collect();
        Ok(Detailed { answer: answers.sum(id.name.kind(), known.name()), regions, counter: counter(id)? })
    }

    fn answer(&self, id: &CounterId, kept: &Entries<Arc<Kept>>) -> Answer {
        self.0.layers.standings.answer(id, kept)
    }

    /// Where every entry of each of `ids` is, once the reads have begun that this caller leads.
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

    /// Starts reads; dropping a lead fails its waiters.
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
            leads.into_iter().for_each(|lead| lead.finish(Err(NoAnswer::Busy), Timing::default()));
        }
    }
}
