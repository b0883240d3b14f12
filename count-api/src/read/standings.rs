//! A *standing* says of one partition of the log `changes` up to when all its changes are counted, and which losses are
//! open. The task [`FollowStandings`] reads all standings every second, and the times up to which consumers have turned
//! events into rows. [`Standings`] makes answers with the newest of them, so that no request waits for such a read.

use std::borrow::Borrow;
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
use crate::definitions::FollowDefinitions;
use crate::metrics::{OPEN_GAPS, REGION_STALENESS, STALENESS, STANDING_AGE};

/// The wait between two reads; half of `--fresh-within` if that is shorter.
const EVERY: Duration = Duration::from_secs(1);

/// The time limit of one read.
const PATIENCE: Duration = Duration::from_secs(10);

/// The age of the last successful read from which on the process is not ready.
const LIMIT: Duration = Duration::from_secs(5);

/// Added to `--fresh-within` for entries of other Regions: they are gathered for 5 s, and come through a mirror.
const REMOTE: Duration = Duration::from_secs(10);

/// The name of this task's condition of readiness.
const CONDITION: &str = "table";

/// Tells whether every table is the one that the deployment was created with. Each answer calls it.
pub type Whole = Arc<dyn Fn() -> bool + Send + Sync>;

/// The newest standings, and the answers that they allow. Clones see the same ones.
#[derive(Clone)]
pub struct Standings {
    known: watch::Receiver<Arc<Known>>,
    /// The store's time.
    clock: Clock,
    fresh_within: Duration,
    /// The tables are whole, and `--topic` is the deployment's.
    whole: Whole,
}

impl Standings {
    /// Standings that a test sends. All tables are whole.
    #[cfg(test)]
    pub fn of(known: &watch::Sender<Arc<Known>>, clock: Clock, fresh_within: Duration) -> Self {
        Self { known: known.subscribe(), clock, fresh_within, whole: Arc::new(|| true) }
    }

    /// Returns the newest standings. A reader takes them before it reads a counter.
    pub fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.borrow())
    }

    /// Returns the time by both clocks.
    pub fn now(&self) -> Now {
        self.clock.reading()
    }

    /// Returns the current answer for a counter, summed over all Regions.
    pub fn answer(&self, id: &CounterId, numbers: &Entries<impl Borrow<Number>>) -> Answer {
        self.answers(id, numbers).sum(id.name.kind(), self.known.borrow().name())
    }

    /// Returns the current answer for each entry of a counter.
    pub fn answers(&self, id: &CounterId, numbers: &Entries<impl Borrow<Number>>) -> Entries<Answer> {
        let (known, now) = (self.known.borrow(), self.clock.now());
        let others = numbers.others.iter();
        let others = others.map(|(id, number)| (id.clone(), self.judged(id, number.borrow(), &known, now)));
        Entries { own: self.judged(id, numbers.own.borrow(), &known, now), others: others.collect() }
    }

    /// Returns the answer at `now`, if there are no other Regions and `number` is not outdone.
    pub fn answer_unless_outdone(&self, id: &CounterId, number: &Number, now: UnixMillis) -> Option<Answer> {
        let known = self.known.borrow();
        if !known.remotes.is_empty() {
            return None;
        }
        let answer = self.judged(id, number, &known, now);
        (!self.outdoes(id, number, &known, now)).then_some(answer)
    }

    /// Returns whether the tables are whole, `--topic` is the deployment's, and no loss is open in the counter's partition.
    pub fn is_lossless(&self, id: &CounterId) -> bool {
        (self.whole)() && self.known.borrow().is_lossless(id)
    }

    /// Returns whether a read of the table would give a better number: one with a later `as_of`, where that of `number`
    /// is older than half of `--fresh-within`; or one that is exact, where `number` is not.
    pub fn is_outdone(&self, id: &CounterId, number: &Number) -> bool {
        self.outdoes(id, number, &self.known.borrow(), self.clock.now())
    }

    fn judged(&self, id: &CounterId, number: &Number, known: &Known, now: UnixMillis) -> Answer {
        let newest = known.of(id).map(|stated| &**stated);
        let mut answer = number.answer(id.name.kind(), newest, now, self.fresh_within(id));
        answer.served.exact &= (self.whole)();
        answer
    }

    /// Returns how old the `as_of` of a fresh answer may be.
    fn fresh_within(&self, id: &CounterId) -> Duration {
        self.fresh_within + if id.name.region().is_some() { REMOTE } else { Duration::ZERO }
    }

    /// [`is_outdone`](Self::is_outdone) at `now`, given the standings `known`.
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

/// The task that reads the standings.
pub struct FollowStandings {
    changes: Changes,
    claims: Claims,
    regions: Regions,
    definitions: FollowDefinitions,
    /// The log's configuration; `None` if it has to be read again.
    log: Option<Config>,
    clock: Clock,
    readiness: Readiness,
    fresh_within: Duration,
    whole: Whole,
    known: watch::Sender<Arc<Known>>,
    /// The last `as_of` that was known for all partitions.
    as_of: Option<UnixMillis>,
    /// The last `as_of` of each other Region, or when this process first heard of the Region.
    remote_as_ofs: BTreeMap<String, UnixMillis>,
}

impl FollowStandings {
    /// Waits for the first read, without which there is no answer for any count.
    ///
    /// # Errors
    /// A fault that does not pass, or a stop.
    pub async fn begin(
        settings: &Settings,
        connection: &Connection,
        definitions: FollowDefinitions,
        whole: Whole,
        host: &Host,
    ) -> anyhow::Result<Self> {
        let topics = Topics::new(&settings.likes.topic);
        let mut this = Self {
            changes: Changes::new(connection),
            claims: Claims::new(connection, host.clock()),
            regions: Regions::new(connection),
            definitions,
            log: None,
            clock: host.clock(),
            readiness: host.readiness().clone(),
            fresh_within: settings.fresh_within,
            whole,
            known: watch::Sender::new(Arc::new(Known::nothing(topics))),
            as_of: None,
            remote_as_ofs: BTreeMap::new(),
        };
        let (log, known) = host.wait_for(CONDITION, Backoff::STORE, || Box::pin(this.found(true))).await?;
        this.publish(log, known);
        Ok(this)
    }

    /// Returns a view of the standings that this task reads.
    pub fn standings(&self) -> Standings {
        let (known, whole, defined) = (self.known.subscribe(), Arc::clone(&self.whole), self.definitions.defined());
        let whole = Arc::new(move || whole() && !defined.is_of_another_topic());
        Standings { known, clock: self.clock, fresh_within: self.fresh_within, whole }
    }

    /// Reads everything once: all standings in one call, the claims of each topic, and the log's configuration if it is
    /// not known. The standings of other Regions are one more call, which is made only if there are any.
    async fn found(&self, is_whole: bool) -> Outcome<(Option<Config>, Known)> {
        let began = self.clock.reading();
        let missing = || Fault::Transient("the log of changes is not set up yet".to_owned());
        let log = match &self.log {
            Some(log) => log.clone(),
            None => self.changes.config().await?.ok_or_else(missing)?,
        };
        let topics = Arc::clone(&self.known.borrow().topics);
        // The futures of requests are large.
        let topics = Box::pin(topics.read(&self.claims, self.definitions.defined().all()));
        let standings = Box::pin(self.changes.standings(log.partitions));
        let (read, topics) = tokio::try_join!(standings, topics)?;
        // Afterwards: a fold that has a Region's name stores the names before any standing. So no standing is used without
        // the Regions that have to be added up beside it.
        let named = self.definitions.follow().await?;
        let mut remotes = Box::pin(self.regions.standings(&named, log.partitions)).await?;
        if !is_whole {
            // The names may be from before an operator adopts other tables, which lack the other Regions' entries.
            remotes.clear();
        }
        let generations = || read.values().map(|stated| stated.at.generation());
        let mut newest = generations().max().unwrap_or(log.generation);
        // A later generation means that another topic was adopted, perhaps with other partitions, or that the same
        // topic lost its end.
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
        match timeout(PATIENCE, self.found((self.whole)())).await {
            Ok(Ok((log, known))) => {
                self.publish(log, known);
                self.readiness.ready(CONDITION);
            }
            Ok(Err(fault)) => self.failed(&fault.to_string()),
            Err(_) => self.failed("no answer"),
        }
        let (now, known) = (self.clock.reading(), Arc::clone(&self.known.borrow()));
        // While a partition has no `as_of`, the last one known for all is kept, and gets older.
        self.as_of = known.as_of().or(self.as_of);
        if let Some(as_of) = self.as_of {
            STALENESS.gauge(&[]).set(now.wall.since(as_of).as_secs_f64());
        }
        STANDING_AGE.gauge(&[]).set(now.since(known.began).as_secs_f64());
        self.measure_remotes(&known, now.wall);
    }

    /// Sets the gauge of each Region's age. It grows while a Region's `as_of` is not known, and is 0 once an operator
    /// has forgotten the Region.
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

    /// Makes the process not ready once reads have failed for some seconds. Answers go on, and their `as_of` shows
    /// their age.
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
