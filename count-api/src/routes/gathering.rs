//! Amounts of one sum that are said within one linger become one event: fewer records, and fewer rows behind them.
//!
//! An event is sent by a task of its own, so a client that leaves changes nothing: its amount is in the event, once, or in
//! none if the process ends first. It was not told which, as after any answer that is lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_core::Map;
use tally_core::definitions::Direction;
use tally_core::event::{MAX_AMOUNT, Said};
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::chosen::Chosen;
use super::writer::EventWriter;

/// How long amounts gather: as long as the producer gathers records.
const LINGER: Duration = Duration::from_millis(5);

/// Events that gather or are under way at once. Further amounts are refused.
const AT_ONCE: usize = 4_096;

/// What is added to which sum, or taken off it.
type Key = (CounterId, Direction);

/// What becomes of an event.
type Told = watch::Receiver<Option<Outcome<UnixMillis>>>;

/// The events that gather, and those under way, which end with the process. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Gatherings {
    open: Arc<Mutex<Map<Key, Gathering>>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// An event that amounts are still added to.
struct Gathering {
    n: Arc<Mutex<u32>>,
    outcome: Told,
}

impl Gatherings {
    /// Adds `n` to the event that gathers, or to a new one that `writer` sends, and waits for its acknowledgement: the time
    /// of the event.
    ///
    /// # Errors
    /// Those of the event, which each of those waiting for it is told.
    pub(super) async fn add(
        &self,
        writer: &EventWriter,
        sum: &Chosen,
        direction: Direction,
        n: u32,
    ) -> Outcome<UnixMillis> {
        let mut outcome = self.join(writer, sum, direction, n)?;
        let told = outcome.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
        told.unwrap_or_else(|| Err(Fault::Transient("the event was dropped: the process ends".to_owned())))
    }

    fn join(&self, writer: &EventWriter, chosen: &Chosen, direction: Direction, n: u32) -> Outcome<Told> {
        let key = (chosen.id(), direction);
        let mut open = self.open.lock();
        if let Some(gathering) = open.get(&key) {
            let mut sum = gathering.n.lock();
            if let Some(more) = sum.checked_add(n).filter(|more| i64::from(*more) <= MAX_AMOUNT) {
                *sum = more;
                return Ok(gathering.outcome.clone());
            }
        }
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= AT_ONCE {
            return Err(Fault::Throttled(format!("{AT_ONCE} events are under way")));
        }
        let (tell, outcome) = watch::channel(None);
        let sum = Arc::new(Mutex::new(n));
        open.insert(key.clone(), Gathering { n: Arc::clone(&sum), outcome: outcome.clone() });
        let (gatherings, writer, chosen) = (Arc::clone(&self.open), writer.clone(), chosen.clone());
        tasks.spawn(async move {
            tokio::time::sleep(LINGER).await;
            let n = closed(&gatherings, &key, &sum);
            let said = writer.event(&chosen, direction, Said::Amount(n)).await;
            // None hears it where all have left.
            let _ = tell.send(Some(said));
        });
        Ok(outcome)
    }
}

/// What has gathered in `sum`. Nothing is added to it afterwards: additions happen under the lock, to what stands there.
fn closed(open: &Mutex<Map<Key, Gathering>>, key: &Key, sum: &Arc<Mutex<u32>>) -> u32 {
    let mut open = open.lock();
    if open.get(key).is_some_and(|gathering| Arc::ptr_eq(&gathering.n, sum)) {
        open.remove(key);
    }
    *sum.lock()
}
