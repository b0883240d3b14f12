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

pub use cache::{Filler, Fills, SharedCache};
pub use entries::{Entries, Summed};
pub use gate::TableGate;
pub use known::Known;
pub use layers::Layers;
pub use local::{Found, Kept, Local, ReadLead};
pub use negative::{Negatives, Recounter};
pub use number::{Answer, Beside, Number};
pub use path::ReadPath;
pub use standings::{FollowStandings, Standings, Whole};
pub use table::{AskTable, Table};
pub use timing::Timing;

use gate::no_answer;

pub use crate::args::Bounds;
use crate::error::{LoggedCause, Problem};
use crate::value::Rendered;

/// Reads under way at once. More are refused: the table's gate lets far fewer through.
const AT_ONCE: usize = 4_096;

/// A counter's answer, that of each Region with a name, and the whole counter of this one.
type InTable = (Answer, Vec<(String, Answer)>, Option<Counter>);

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

    /// The count of `id` as the table has it, judged now, and the whole counter of this Region.
    pub async fn detailed(&self, id: &CounterId) -> Result<(Answer, Option<Counter>), NoAnswer> {
        let (answers, _, counter) = self.in_table(id).await?;
        Ok((answers, counter))
    }

    /// The count of `id` as the table has it, judged now, and that of each Region under its name.
    pub async fn by_region(&self, id: &CounterId) -> Result<(Answer, Vec<(String, Answer)>), NoAnswer> {
        let (answer, by_region, _) = self.in_table(id).await?;
        Ok((answer, by_region))
    }

    async fn in_table(&self, id: &CounterId) -> Result<InTable, NoAnswer> {
        let Layers { standings, table, .. } = &*self.0.layers;
        let known = standings.known();
        let (all, each) = known.entries(std::slice::from_ref(id));
        let mut read = table.read(&all).await?;
        let now = standings.now().wall;
        let counters = all.iter().map(|id| read.counters.remove(id).transpose().map_err(|fault| no_answer(&fault)));
        let mut counters: Vec<Option<Counter>> = counters.collect::<Result<_, _>>()?;
        let number = |(id, counter): (&CounterId, &Option<Counter>)| {
            Number::read(counter.as_ref(), &read, known.beside(id, known.of(id).cloned()), now)
        };
        let numbers = all.iter().zip(&counters).map(number).collect();
        let numbers = Entries::of_each(&all, each, numbers).remove(0);
        let answers = standings.answers(id, &numbers);
        let named = answers.named(known.name()).into_iter().filter(|(name, _)| !name.is_empty());
        let named = named.map(|(name, answer)| (name.to_owned(), answer.clone())).collect();
        Ok((answers.sum(id.name.kind(), known.name()), named, counters.remove(0)))
    }

    fn answer(&self, id: &CounterId, kept: &Entries<Arc<Kept>>) -> Answer {
        self.0.layers.standings.answer(id, kept)
    }

    /// Where every entry of each of `ids` is, once the reads have begun that this caller leads.
    fn find(&self, ids: &[CounterId]) -> Vec<Entries<Found>> {
        let layers = &self.0.layers;
        let (all, each) = layers.standings.known().entries(ids);
        let outdone = |id: &CounterId, number: &Number| layers.standings.is_outdone(id, number);
        let (found, leads) = self.0.local.find(&all, layers.standings.now(), outdone);
        layers.counters.local.increment(found.iter().filter(|found| found.is_kept()).count() as u64);
        self.begin(leads);
        Entries::of_each(&all, each, found)
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
