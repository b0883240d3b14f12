//! The standings of all partitions of `changes`, and what consumers have stored of the topics that events come from, read again
//! and again. No request waits for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Changes, Config};
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::{Connection, Topics};
use tally_core::backoff::Backoff;
use tally_core::cached::StandingAt;
use tally_core::event::partition_of;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::served;
use tally_core::time::{Now, UnixMillis};
use tally_service::{Clock, Host, Readiness, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

use super::number::{Answer, Beside, Number};
use crate::config::Config as Settings;
use crate::definitions::Defined;
use crate::metrics::{OPEN_GAPS, STALENESS, STANDING_AGE};

/// The wait between two reads, if freshness asks for no shorter one.
const EVERY: Duration = Duration::from_secs(1);

/// How long one read may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How old the last read may be before the process is not ready.
const LIMIT: Duration = Duration::from_secs(5);

/// The condition of readiness that the task states.
const CONDITION: &str = "table";

/// Whether every table is the one that the deployment was created with. It is asked for each answer.
pub type Whole = Arc<dyn Fn() -> bool + Send + Sync>;

/// What one read found.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// When the read began.
    pub began: Now,
    /// The generation of the topic whose partitions these are, and the last one that a fold is known to have gone on in, where
    /// the same topic lost its end.
    generations: (u16, u16),
    partitions: Vec<Option<Arc<StandingAt>>>,
    /// By when everything acknowledged was a row.
    topics: Arc<Topics>,
}

impl Known {
    /// The standings that were `read` of the log that `log` describes, up to the generation `newest`.
    fn new(began: Now, log: &Config, newest: u16, mut read: BTreeMap<u32, StandingAt>, topics: Topics) -> Self {
        let generations = (log.generation, newest);
        let mut known = Self { began, generations, partitions: Vec::new(), topics: Arc::new(topics) };
        let mut current = |partition| read.remove(&partition).filter(|stated| known.is_current(stated)).map(Arc::new);
        let partitions = (0..log.partitions).map(&mut current).collect();
        known.partitions = partitions;
        known
    }

    /// A log of one partition that a test sends.
    #[cfg(test)]
    pub fn of_one(stated: StandingAt) -> Self {
        Self { partitions: vec![Some(Arc::new(stated))], topics: Arc::new(Topics::of_one()), ..Self::default() }
    }

    /// Whether a standing is of the topic that is known. In another one a counter may be in another partition.
    pub fn is_current(&self, stated: &StandingAt) -> bool {
        let (first, newest) = self.generations;
        (first..=newest).contains(&stated.at.generation())
    }

    /// The partition that everything about a counter is in; `None` before the log has begun.
    pub fn partition(&self, id: &CounterId) -> Option<u32> {
        let partitions = u32::try_from(self.partitions.len()).ok().filter(|partitions| *partitions > 0)?;
        Some(partition_of(id.post.as_bytes(), partitions))
    }

    /// The standing of a counter's partition.
    pub fn of(&self, id: &CounterId) -> Option<&Arc<StandingAt>> {
        self.partitions.get(usize::try_from(self.partition(id)?).ok()?)?.as_ref()
    }

    /// What a counter is read beside that is read after this standing of its partition was taken.
    pub fn beside(&self, id: &CounterId, standing: Option<Arc<StandingAt>>) -> Beside {
        let stated = standing.as_ref().zip(self.topics.of(id));
        let as_of = stated.and_then(|(stated, partitions)| served::as_of(&stated.standing, partitions));
        Beside { standing, as_of }
    }

    /// The least `as_of` that any counter may have.
    fn as_of(&self) -> Option<UnixMillis> {
        let as_of = |stated: &Option<Arc<StandingAt>>| served::as_of(&stated.as_ref()?.standing, self.topics.all());
        let as_ofs: Option<Vec<_>> = self.partitions.iter().map(as_of).collect();
        as_ofs?.into_iter().min()
    }

    fn is_lossless(&self, id: &CounterId) -> bool {
        self.of(id).is_some_and(|stated| stated.standing.open.is_empty())
    }

    /// How many losses are open in some partition.
    fn losses(&self) -> usize {
        let mut open: Vec<_> = self.partitions.iter().flatten().flat_map(|stated| &stated.standing.open).collect();
        open.sort_unstable();
        open.dedup();
        open.len()
    }
}

/// The newest standings, and the answers that they allow. Clones see the same ones.
#[derive(Clone)]
pub struct Standings {
    known: watch::Receiver<Arc<Known>>,
    /// What time it is by the store's clock.
    clock: Clock,
    fresh_within: Duration,
    whole: Whole,
}

impl Standings {
    /// Standings that a test sends, by which the tables are whole.
    #[cfg(test)]
    pub fn of(known: &watch::Sender<Arc<Known>>, clock: Clock, fresh_within: Duration) -> Self {
        Self { known: known.subscribe(), clock, fresh_within, whole: Arc::new(|| true) }
    }

    /// What is known: to be taken before a counter is read.
    pub fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.borrow())
    }

    /// The time by both clocks.
    pub fn now(&self) -> Now {
        self.clock.reading()
    }

    /// What may be said of a number now.
    pub fn answer(&self, id: &CounterId, number: &Number) -> Answer {
        self.judged(id, number, self.known.borrow().of(id).map(|stated| &**stated), self.clock.now())
    }

    /// The same at `now`, unless a read of the table gives a number that is worth more.
    pub fn answer_unless_outdone(&self, id: &CounterId, number: &Number, now: UnixMillis) -> Option<Answer> {
        let known = self.known.borrow();
        let answer = self.judged(id, number, known.of(id).map(|stated| &**stated), now);
        (!self.outdoes(id, number, &known, now)).then_some(answer)
    }

    /// Whether no loss is open in the partition of a counter, and the tables are whole.
    pub fn is_lossless(&self, id: &CounterId) -> bool {
        (self.whole)() && self.known.borrow().is_lossless(id)
    }

    /// Whether a read of the table gives a number that is worth more: `as_of` is older than half of what answers are promised,
    /// and a later one is known; or the number may be exact beside the standing that is known, and is not so now.
    pub fn is_outdone(&self, id: &CounterId, number: &Number) -> bool {
        self.outdoes(id, number, &self.known.borrow(), self.clock.now())
    }

    fn judged(&self, id: &CounterId, number: &Number, newest: Option<&StandingAt>, now: UnixMillis) -> Answer {
        let mut answer = number.answer(id.name.kind(), newest, now, self.fresh_within);
        answer.served.exact &= (self.whole)();
        answer
    }

    fn outdoes(&self, id: &CounterId, number: &Number, known: &Known, now: UnixMillis) -> bool {
        let Some(newest) = known.of(id) else { return false };
        if number.standing.as_ref().is_some_and(|own| own.at >= newest.at) {
            return false;
        }
        let beside = Number::new(number.value, known.beside(id, Some(Arc::clone(newest))), now);
        let is_old = number.as_of.is_none_or(|as_of| now.since(as_of) > self.fresh_within / 2);
        if is_old && beside.as_of > number.as_of {
            return true;
        }
        let exact = |number: &Number| number.answer(id.name.kind(), Some(newest), now, self.fresh_within).served.exact;
        !exact(number) && exact(&beside)
    }
}

/// The task that reads.
pub struct FollowStandings {
    changes: Changes,
    claims: Claims,
    defined: Defined,
    /// What was known of the log; `None` where that has to be read.
    log: Option<Config>,
    clock: Clock,
    readiness: Readiness,
    fresh_within: Duration,
    whole: Whole,
    known: watch::Sender<Arc<Known>>,
    /// The last time at which all of it was known.
    as_of: Option<UnixMillis>,
}

impl FollowStandings {
    /// Waits for the first read: before it nothing can be said of any count.
    ///
    /// # Errors
    /// A fault that waiting does not mend, or a stop.
    pub async fn begin(
        settings: &Settings,
        connection: &Connection,
        defined: Defined,
        whole: Whole,
        host: &Host,
    ) -> anyhow::Result<Self> {
        let topics = Arc::new(Topics::new(&settings.write.topic));
        let mut this = Self {
            changes: Changes::new(connection),
            claims: Claims::new(connection, host.clock()),
            defined,
            log: None,
            clock: host.clock(),
            readiness: host.readiness().clone(),
            fresh_within: settings.fresh_within,
            whole,
            known: watch::Sender::new(Arc::new(Known { topics, ..Known::default() })),
            as_of: None,
        };
        let (log, known) = host.wait_for(CONDITION, Backoff::STORE, || this.found()).await?;
        this.publish(log, known);
        Ok(this)
    }

    /// What judges by the reads of this task.
    pub fn standings(&self) -> Standings {
        let (known, whole) = (self.known.subscribe(), Arc::clone(&self.whole));
        Standings { known, clock: self.clock, fresh_within: self.fresh_within, whole }
    }

    /// One read: all standings in one call, and of each topic what is known of it and all claims. The log's configuration is read
    /// where it is not known.
    async fn found(&self) -> Outcome<(Option<Config>, Known)> {
        let began = self.clock.reading();
        let missing = || Fault::Transient("the log of changes is not set up yet".to_owned());
        let log = match &self.log {
            Some(log) => log.clone(),
            None => self.changes.config().await?.ok_or_else(missing)?,
        };
        let topics = Arc::clone(&self.known.borrow().topics);
        // The futures of requests are large.
        let topics = Box::pin(topics.read(&self.claims, self.defined.all()));
        let standings = Box::pin(self.changes.standings(log.partitions));
        let (read, topics) = tokio::try_join!(standings, topics)?;
        let generations = || read.values().map(|stated| stated.at.generation());
        let mut newest = generations().max().unwrap_or(log.generation);
        // A later generation is that of a topic that was adopted since, with other partitions perhaps; or the same topic lost
        // its end.
        if newest > log.generation && self.changes.config().await? != Some(log.clone()) {
            newest = log.generation;
        }
        let is_current = generations().all(|generation| (log.generation..=newest).contains(&generation));
        let known = Known::new(began, &log, newest, read, topics);
        Ok((is_current.then_some(log), known))
    }

    fn publish(&mut self, log: Option<Config>, known: Known) {
        self.log = log;
        OPEN_GAPS.gauge(&[]).set(u32::try_from(known.losses()).unwrap_or(u32::MAX));
        self.known.send_replace(Arc::new(known));
    }

    async fn follow(&mut self) {
        match timeout(PATIENCE, self.found()).await {
            Ok(Ok((log, known))) => {
                self.publish(log, known);
                self.readiness.ready(CONDITION);
            }
            Ok(Err(fault)) => self.failed(&fault.to_string()),
            Err(_) => self.failed("no answer"),
        }
        let (now, known) = (self.clock.reading(), Arc::clone(&self.known.borrow()));
        // While something is not known of a partition, all get older.
        self.as_of = known.as_of().or(self.as_of);
        if let Some(as_of) = self.as_of {
            STALENESS.gauge(&[]).set(now.wall.since(as_of).as_secs_f64());
        }
        STANDING_AGE.gauge(&[]).set(now.since(known.began).as_secs_f64());
    }

    /// One failure says little; after several the table is called away. Answers go on, and show by `as_of` how old they are.
    fn failed(&self, why: &str) {
        if self.clock.reading().since(self.known.borrow().began) < LIMIT {
            return;
        }
        let was_ready = self.readiness.report().conditions.get(CONDITION) == Some(&tally_service::Condition::Ready);
        if was_ready {
            tracing::warn!(error = why, "standings cannot be read: answers are not fresh");
        }
        self.readiness.not_ready(CONDITION, why);
    }
}

impl Task for FollowStandings {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let every = EVERY.min(self.fresh_within / 2);
        while stop.unless_requested(self.clock.sleep(every)).await.is_ok() {
            self.follow().await;
        }
        Ok(())
    }
}
