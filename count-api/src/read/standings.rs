//! The standings of all partitions of `changes`, and what consumers have stored of the topics that events come from, read again
//! and again. No request waits for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Changes, Config};
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::regions::Regions;
use tally_adapters::dynamodb::{Connection, Topics};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::time::{Now, UnixMillis};
use tally_service::{Clock, Host, Readiness, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

use super::entries::Entries;
use super::known::Known;
use super::number::Number;
use crate::answer::Answer;
use crate::args::Config as Settings;
use crate::definitions::Defined;
use crate::metrics::{OPEN_GAPS, REGION_STALENESS, STALENESS, STANDING_AGE};

/// The wait between two reads, if freshness asks for no shorter one.
const EVERY: Duration = Duration::from_secs(1);

/// How long one read may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How old the last read may be before the process is not ready.
const LIMIT: Duration = Duration::from_secs(5);

/// How much older the entry of another Region may be and be called fresh: it is gathered for 5 s, and comes through a mirror.
const REMOTE: Duration = Duration::from_secs(10);

/// The condition of readiness that the task states.
const CONDITION: &str = "table";

/// Whether every table is the one that the deployment was created with. It is asked for each answer.
pub type Whole = Arc<dyn Fn() -> bool + Send + Sync>;

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

    /// What may be said now of a counter, over all Regions.
    pub fn answer(&self, id: &CounterId, numbers: &Entries<impl AsRef<Number>>) -> Answer {
        self.answers(id, numbers).sum(id.name.kind(), self.known.borrow().name())
    }

    /// What may be said now of each of its entries.
    pub fn answers(&self, id: &CounterId, numbers: &Entries<impl AsRef<Number>>) -> Entries<Answer> {
        let (known, now) = (self.known.borrow(), self.clock.now());
        let others = numbers.others.iter();
        let others = others.map(|(id, number)| (id.clone(), self.judged(id, number.as_ref(), &known, now)));
        Entries { own: self.judged(id, numbers.own.as_ref(), &known, now), others: others.collect() }
    }

    /// The same at `now` of a counter that no other Region has a part of, unless a read of the table gives a number that is worth
    /// more.
    pub fn answer_unless_outdone(&self, id: &CounterId, number: &Number, now: UnixMillis) -> Option<Answer> {
        let known = self.known.borrow();
        if !known.remotes.is_empty() {
            return None;
        }
        let answer = self.judged(id, number, &known, now);
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

    fn judged(&self, id: &CounterId, number: &Number, known: &Known, now: UnixMillis) -> Answer {
        let newest = known.of(id).map(|stated| &**stated);
        let mut answer = number.answer(id.name.kind(), newest, now, self.fresh_within(id));
        answer.served.exact &= (self.whole)();
        answer
    }

    /// How old a counter may be and be called fresh.
    fn fresh_within(&self, id: &CounterId) -> Duration {
        self.fresh_within + if id.name.region().is_some() { REMOTE } else { Duration::ZERO }
    }

    /// The same at `now`, beside what is `known`.
    pub(super) fn outdoes(&self, id: &CounterId, number: &Number, known: &Known, now: UnixMillis) -> bool {
        let Some(newest) = known.of(id) else { return false };
        let fresh_within = self.fresh_within(id);
        if number.standing.as_ref().is_some_and(|own| own.at >= newest.at) {
            return false;
        }
        let beside = Number::new(number.value, known.beside(id, Some(Arc::clone(newest))), now);
        let is_old = number.as_of.is_none_or(|as_of| now.since(as_of) > fresh_within / 2);
        if is_old && beside.as_of > number.as_of {
            return true;
        }
        let exact = |number: &Number| number.answer(id.name.kind(), Some(newest), now, fresh_within).served.exact;
        !exact(number) && exact(&beside)
    }
}

/// The task that reads.
pub struct FollowStandings {
    changes: Changes,
    claims: Claims,
    regions: Regions,
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
    /// When a table was another one last.
    torn: Option<Now>,
    /// The same of each other Region, or when it was first heard of.
    remote_as_ofs: BTreeMap<String, UnixMillis>,
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
        let topics = Topics::new(&settings.topic);
        let mut this = Self {
            changes: Changes::new(connection),
            claims: Claims::new(connection, host.clock()),
            regions: Regions::new(connection),
            defined,
            log: None,
            clock: host.clock(),
            readiness: host.readiness().clone(),
            fresh_within: settings.fresh_within,
            whole,
            known: watch::Sender::new(Arc::new(Known::nothing(topics))),
            as_of: None,
            torn: None,
            remote_as_ofs: BTreeMap::new(),
        };
        let (log, known) = host.wait_for(CONDITION, Backoff::STORE, || Box::pin(this.found())).await?;
        this.publish(log, known);
        Ok(this)
    }

    /// What judges by the reads of this task.
    pub fn standings(&self) -> Standings {
        let (known, whole) = (self.known.subscribe(), Arc::clone(&self.whole));
        Standings { known, clock: self.clock, fresh_within: self.fresh_within, whole }
    }

    /// One read: all standings in one call, and of each topic what is known of it and all claims. The log's configuration is read
    /// where it is not known. Standings of other Regions are a call more, which is not made where there are none.
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
        let (named, named_at) = self.defined.regions();
        let remotes = Box::pin(self.regions.standings(&named, log.partitions));
        let (read, topics, mut remotes) = tokio::try_join!(standings, topics, remotes)?;
        if self.torn.is_some_and(|torn| named_at.at <= torn.at) {
            // Other tables may have been adopted since the names were read, without the entries of other Regions.
            remotes.clear();
        }
        let generations = || read.values().map(|stated| stated.at.generation());
        let mut newest = generations().max().unwrap_or(log.generation);
        // A later generation is that of a topic that was adopted since, with other partitions perhaps; or the same topic lost
        // its end.
        if newest > log.generation && self.changes.config().await? != Some(log.clone()) {
            newest = log.generation;
        }
        let is_current = generations().all(|generation| (log.generation..=newest).contains(&generation));
        let known = Known::new(began, &log, newest, read, topics).with(named, remotes);
        Ok((is_current.then_some(log), known))
    }

    fn publish(&mut self, log: Option<Config>, known: Known) {
        self.log = log;
        OPEN_GAPS.gauge(&[]).set(u32::try_from(known.losses()).unwrap_or(u32::MAX));
        self.known.send_replace(Arc::new(known));
    }

    async fn follow(&mut self) {
        if !(self.whole)() {
            self.torn = Some(self.clock.reading());
        }
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
        self.measure_remotes(&known, now.wall);
    }

    /// A Region of which something is not known gets older. One that was forgotten is silent for no time.
    fn measure_remotes(&mut self, known: &Known, now: UnixMillis) {
        let last = std::mem::take(&mut self.remote_as_ofs);
        for (name, as_of) in known.remote_as_ofs() {
            let as_of = as_of.or_else(|| last.get(name).copied()).unwrap_or(now);
            self.remote_as_ofs.insert(name.to_owned(), as_of);
        }
        for name in last.keys().chain(self.remote_as_ofs.keys()) {
            let age = self.remote_as_ofs.get(name).map_or(Duration::ZERO, |as_of| now.since(*as_of));
            metrics::gauge!(REGION_STALENESS.name, "region" => name.clone()).set(age.as_secs_f64());
        }
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
