//! What all simulated processes of a Region share: the emulated DynamoDB, the Kafka and the cache in memory, and the
//! records of what happens in them. The simulation's own checks read them here without faults.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tally_adapters::dynamodb::{self, Connection, Consistency, ScannedRow, Segment, Settings, Stores};
use tally_adapters::memory::PartitionCache;
use tally_adapters::memory::log::Broker;
use tally_consumer::letter::Letter;
use tally_core::cached::StandingAt;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, RowKey};
use tally_emulator::{Config, Emulator, Rule};
use tally_service::{Clock, Host};
use tally_testkit::{BEGAN, every, records};

use crate::simulation::abroad::{COPIED, COUNTS, Place};
use crate::simulation::cache::Breaches;
use crate::simulation::events::{LETTERS, TOPIC};
use crate::simulation::faults::Coverage;
use crate::simulation::history::{History, LIKES};
use crate::simulation::honest::Honesty;
use crate::simulation::journal::{CHANGES, Journal};
use crate::simulation::lists::BOARDS;
use crate::simulation::producer::UnderWay;
use crate::simulation::profile::Profile;
use crate::simulation::readers::Pulse;
use crate::simulation::registers::{Registers, Writes};
use crate::simulation::trace::Trace;
use crate::simulation::wire::Wire;
use crate::simulation::wire::tampered::Remembered;
use crate::tables;

/// The capacity of the cache in counters.
const CACHED: usize = 10_000;

/// What the processes share.
pub(crate) struct World {
    pub(crate) emulator: Emulator,
    pub(crate) broker: Broker,
    pub(crate) cache: PartitionCache,
    pub(crate) clock: Clock,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    pub(crate) breaches: Breaches,
    pub(crate) history: History,
    pub(crate) registers: Registers,
    pub(crate) journal: Journal,
    pub(crate) writes: Writes,
    /// Filters that were stored earlier, and corrections of mutants that outlive a loss.
    pub(crate) remembered: Remembered,
    pub(crate) corrections: UnderWay,
    pub(crate) honesty: Honesty,
    pub(crate) pulse: Pulse,
    /// Which Region it is, where there are two.
    pub(crate) place: Option<Place>,
    /// Runs the harness's own tasks.
    pub(crate) host: Host,
    /// The harness's own access to the tables, without the faults of processes.
    pub(crate) calm: Stores,
}

/// The settings of a process's clients. They make one attempt, since the SDK's own retries are not drawn from the seed and
/// would hide failures. They have no time limit, since faults decide when an answer is lost and a frozen process cannot watch
/// the time. The pipeline without faults has the same ones.
pub(crate) fn settings() -> Settings {
    let patience = Duration::from_secs(30 * 24 * 3600);
    Settings { attempts: 1, attempt_timeout: patience, ..Settings::local("") }
}

impl World {
    /// A second Region, whose answers are those of `home`.
    pub(crate) async fn beside(profile: &Profile, home: &Self) -> anyhow::Result<Arc<Self>> {
        let (breaches, honesty, pulse) = (home.breaches.clone(), home.honesty.clone(), home.pulse.clone());
        let (clock, coverage, trace) = (home.clock, home.coverage.clone(), home.trace.clone());
        let own = Self::new(profile, Some(Place::Abroad)).await?;
        Ok(Arc::new(Self { breaches, honesty, pulse, clock, coverage, trace, ..own }))
    }

    /// Empty tables and topics, of one of two Regions where there are two.
    pub(crate) async fn new(profile: &Profile, place: Option<Place>) -> anyhow::Result<Self> {
        let epoch = std::time::UNIX_EPOCH + Duration::from_millis(BEGAN.0);
        let emulator = Emulator::new(Config { epoch: Some(epoch), ..profile.engine.clone() });
        let (trace, coverage) = (Trace::new(), Coverage::default());
        let clock = Clock::starting_at(BEGAN);
        let wire = Wire::new("observer", clock, &trace, &coverage).client(&emulator);
        let connection = Connection::in_process(&settings(), wire, BEGAN);
        dynamodb::ensure_tables(&connection).await.context("cannot create the tables")?;
        let (history, registers) = (History::dated(profile.partitions), Registers::of(&emulator)?);
        let (kept, also) = (history.clone(), registers.clone());
        emulator.watch(LIKES, move |changed| {
            kept.keep(&changed);
            also.keep(&changed);
        })?;
        let writes = Writes::default();
        writes.watch(&emulator)?;
        let honesty = Honesty::of(vec![history.clone()], profile.engine.stream_delay, profile.engine.stream_reorder);
        let broker = topics(profile, place);
        Ok(Self {
            journal: Journal::of(&broker, profile.changes),
            emulator,
            broker,
            cache: PartitionCache::bounded(CACHED),
            clock,
            trace,
            coverage,
            breaches: Breaches::default(),
            history,
            registers,
            writes,
            remembered: Remembered::default(),
            corrections: UnderWay::default(),
            honesty,
            pulse: Pulse::new(),
            place,
            host: Host::new("harness").with_clock(clock),
            calm: Stores::over(&connection, clock),
        })
    }

    /// Runs `look` while no request fails and none is late, so that no time passes meanwhile.
    pub(crate) fn calmly<T>(&self, look: impl Future<Output = T>) -> impl Future<Output = T> {
        tables::calmly(&self.emulator, look)
    }

    /// Sets the faults of single requests from now on.
    pub(crate) fn set_rules(&self, rules: &[Rule]) {
        self.emulator.set_faults(rules.to_vec());
    }

    /// Every row.
    pub(crate) async fn rows(&self) -> anyhow::Result<Vec<ScannedRow>> {
        let rows = every(async |after| self.calm.rows.scan(Segment { index: 0, of: 1 }, after).await);
        Ok(self.calmly(rows).await?)
    }

    /// The counters of `ids`. A missing one is empty.
    pub(crate) async fn counters(
        &self,
        ids: impl Iterator<Item = CounterId>,
    ) -> anyhow::Result<BTreeMap<CounterId, Counter>> {
        let ids: Vec<CounterId> = ids.collect();
        let mut found = self.calmly(self.calm.counters.read(&ids, Consistency::Strong)).await?.counters;
        ids.into_iter().map(|id| Ok((id.clone(), found.remove(&id).transpose()?.unwrap_or_default()))).collect()
    }

    /// The standing of each partition of the log.
    pub(crate) async fn standings(&self) -> anyhow::Result<BTreeMap<u32, StandingAt>> {
        Ok(self.calmly(self.calm.changes.standings(self.journal.partitions)).await?)
    }

    /// The losses that no recount has repaired, as text.
    pub(crate) async fn losses(&self) -> anyhow::Result<Vec<String>> {
        let losses = self.calmly(self.calm.changes.losses()).await?;
        Ok(losses.open().map(|(number, loss)| format!("{number} {} {}", loss.kind, loss.what)).collect())
    }

    /// The records that have a dead letter.
    pub(crate) async fn letters(&self) -> anyhow::Result<BTreeSet<(u32, u64)>> {
        let mut found = BTreeSet::new();
        for (_, run) in records(&self.broker.reader("observer", LETTERS)).await? {
            for letter in run.iter().map(Letter::read) {
                let (_, index, offset) = letter.from.context("a dead letter does not name its record")?;
                found.insert((index, offset.0));
            }
        }
        Ok(found)
    }

    /// Adds `amount` to a shard's count and to the total by hand, like an operator's mistake.
    pub(crate) async fn inject(&self, key: &RowKey, amount: i64) -> bool {
        let body = json!({
            "TableName": "like_counts",
            "Key": {"post_id": {"S": key.counter.stored()}},
            "UpdateExpression": "ADD #s :d, #t :d",
            "ConditionExpression": "attribute_exists(#p)",
            "ExpressionAttributeNames": {"#s": format!("s{}", key.shard), "#t": "likes", "#p": "post_id"},
            "ExpressionAttributeValues": {":d": {"N": amount.to_string()}},
        });
        tables::send(&self.emulator, "UpdateItem", &body).await
    }

    /// Whether the queue of row keys, the queued audit and the losses are empty.
    pub(crate) async fn is_recounted(&self) -> anyhow::Result<bool> {
        let queued = self.calmly(self.calm.recounts.queued(None)).await?;
        let audit = self.calmly(self.calm.recounts.audit_queued()).await?;
        Ok(queued.items.is_empty() && audit.is_none() && self.losses().await?.is_empty())
    }
}

/// A broker with every topic of a schedule.
fn topics(profile: &Profile, place: Option<Place>) -> Broker {
    let broker = Broker::new();
    broker.create_topic(TOPIC, profile.partitions);
    broker.create_topic(LETTERS, 1);
    broker.create_topic(CHANGES, profile.changes);
    if place.is_some() {
        broker.create_topic(COUNTS, profile.changes);
        broker.create_topic(COPIED, profile.changes);
    }
    if let Some(listing) = &profile.listing {
        broker.create_topic(BOARDS, listing.boards);
    }
    broker
}
