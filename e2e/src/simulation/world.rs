//! The store, the log and the cache that the processes share, looked at from outside without their faults.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::memory::{self, Memory, log::Broker};
use tally_core::counter::Counter;
use tally_core::homes::Homes;
use tally_core::ids::{CounterId, CounterKind, Ordinal, RowKey, Shard};
use tally_core::milestone::{Events, Milestone, Winner};
use tally_core::ports::{
    ChangeStream, ChangesLedger as _, Checkpoints, CounterMaps, Counts, Cursor, DeploymentConfig as _, Gaps as _,
    Markers, Positions as _, RecountQueue as _, Recounts, Rows, ScannedRow, Segment, ShardState, TopicReader,
};
use tally_core::time::UnixMillis;
use tally_core::window::WindowRun;
use tally_emulator::{Config, Emulator, Rule};
use tally_service::{Clock, Host};

use super::cache::Breaches;
use super::coverage::Coverage;
use super::events::{LETTERS, TOPIC};
use super::history::History;
use super::laws::Honesty;
use super::lists::{BOARDS, CHANGES};
use super::milestones::Changes;
use super::moves::Moves;
use super::profile::Profile;
use super::readers::Pulse;
use super::trace::Trace;
use super::wire::Wire;
use crate::undisturbed;

/// When every schedule begins.
const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);

/// How long before that the ledger of changes is complete, where it does not begin with the schedule: for any window.
const STANDS: Duration = Duration::from_secs(3_600);

/// What the processes share.
pub(crate) struct World {
    pub(crate) emulator: Emulator,
    pub(crate) broker: Broker,
    pub(crate) cache: memory::Cache,
    pub(crate) clock: Clock,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    pub(crate) breaches: Breaches,
    pub(crate) history: History,
    pub(crate) moves: Moves,
    pub(crate) changes: Changes,
    pub(crate) honesty: Honesty,
    pub(crate) pulse: Pulse,
    /// What the harness itself runs beside the processes.
    pub(crate) host: Host,
    pub(crate) calm: Calm,
}

/// The harness's own ports of the tables, which no fault of a process reaches.
pub(crate) struct Calm {
    rows: dynamodb::Rows,
    pub(crate) maps: dynamodb::Maps,
    pub(crate) counts: dynamodb::Counts,
    pub(crate) checkpoints: dynamodb::Checkpoints,
    pub(crate) recounts: dynamodb::Recounts,
    pub(crate) stream: dynamodb::Streams,
}

/// How a process's clients behave: one attempt, for the SDK's own repetitions are drawn outside of the seed, and no time
/// limit, for the faults say when an answer does not come and a frozen process does not watch the time.
pub(crate) fn settings() -> Settings {
    let patience = Duration::from_secs(30 * 24 * 3600);
    Settings { attempts: 1, attempt_timeout: patience, ..Settings::local("") }
}

impl World {
    /// Empty tables and topics.
    pub(crate) async fn new(profile: &Profile) -> anyhow::Result<Self> {
        let epoch = std::time::UNIX_EPOCH + Duration::from_millis(BEGAN.0);
        let emulator = Emulator::new(Config { epoch: Some(epoch), ..profile.engine.clone() });
        let (trace, coverage) = (Trace::new(), Coverage::default());
        let wire = Wire::new("observer", &emulator, &trace, &coverage);
        let connection = Connection::in_process(&settings(), wire, BEGAN);
        dynamodb::ensure_tables(&connection).await.context("cannot create the tables")?;
        let (history, moves) = (History::of(&emulator)?, Moves::of(&emulator)?);
        let changes = Changes::of(&emulator)?;
        let honesty = Honesty::of(history.clone(), profile.engine.stream_delay, profile.engine.stream_reorder);
        let broker = Broker::new();
        broker.create_topic(TOPIC, profile.partitions);
        broker.create_topic(LETTERS, 1);
        if let Some(listing) = &profile.listing {
            broker.create_topic(CHANGES, listing.partitions);
            broker.create_topic(BOARDS, listing.boards);
        }
        let calm = Calm {
            rows: dynamodb::Rows::new(&connection),
            maps: dynamodb::Maps::new(&connection),
            counts: dynamodb::Counts::new(&connection),
            checkpoints: dynamodb::Checkpoints::new(&connection),
            recounts: dynamodb::Recounts::new(&connection),
            stream: dynamodb::Streams::new(&connection),
        };
        if let Some(listing) = profile.listing.as_ref().filter(|listing| listing.stands) {
            calm.checkpoints.config(Some(profile.shards)).await?;
            calm.checkpoints.begin_changes(listing.partitions, Ordinal(0)).await?;
            calm.checkpoints.changes_complete(BEGAN.minus(STANDS)).await?;
        }
        let cache = Memory::new(BEGAN, 1).cache();
        let clock = Clock::starting_at(BEGAN);
        let (breaches, pulse, host) = (Breaches::default(), Pulse::new(), Host::new("harness").with_clock(clock));
        Ok(Self {
            emulator,
            broker,
            cache,
            clock,
            trace,
            coverage,
            breaches,
            history,
            moves,
            changes,
            honesty,
            pulse,
            host,
            calm,
        })
    }

    /// What `look` finds while no request fails and none is late, so that no time passes meanwhile.
    pub(crate) async fn calmly<T>(&self, look: impl Future<Output = T>) -> T {
        let rules = self.emulator.faults();
        self.emulator.set_faults(Vec::new());
        let found = look.await;
        self.emulator.set_faults(rules);
        found
    }

    /// The faults of single requests from now on.
    pub(crate) fn set_rules(&self, rules: &[Rule]) {
        self.emulator.set_faults(rules.to_vec());
    }

    /// Every row there is.
    pub(crate) async fn rows(&self) -> anyhow::Result<Vec<ScannedRow>> {
        let (mut rows, mut after): (_, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page = self.calm.rows.scan(Segment { index: 0, of: 1 }, after.as_ref()).await?;
            rows.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(rows);
            }
        }
    }

    /// The homes of those of `ids` that have a map.
    pub(crate) async fn homes(
        &self,
        ids: impl Iterator<Item = CounterId>,
    ) -> anyhow::Result<BTreeMap<CounterId, Homes>> {
        let ids: Vec<CounterId> = ids.filter(|id| id.name.kind() == CounterKind::Set).collect();
        let maps = self.calm.maps.maps(&ids).await?;
        Ok(ids.into_iter().zip(maps).filter_map(|(id, map)| Some((id, map?.homes()))).collect())
    }

    /// The counters of `ids`; one that is not there is an empty one.
    pub(crate) async fn counters(
        &self,
        ids: impl Iterator<Item = CounterId>,
    ) -> anyhow::Result<BTreeMap<CounterId, Counter>> {
        let ids: Vec<CounterId> = ids.collect();
        let found = self.calm.counts.counters(&ids).await?;
        ids.into_iter().zip(found).map(|(id, found)| Ok((id, found?.unwrap_or_default()))).collect()
    }

    /// The stream shards' checkpoints.
    pub(crate) async fn states(&self) -> anyhow::Result<Vec<ShardState>> {
        let label = self.calm.stream.info().await?.label;
        Ok(self.calm.checkpoints.shards(&label).await?)
    }

    /// Which records have a dead letter.
    pub(crate) async fn letters(&self) -> anyhow::Result<BTreeSet<(u32, u64)>> {
        let reader = self.broker.reader("observer", LETTERS);
        let mut found = BTreeSet::new();
        for (partition, log) in reader.logs().await? {
            let mut at = log.start;
            while at < log.end {
                let records = reader.read(&partition, at, log.end).await?;
                for record in records.iter() {
                    let number = |name| {
                        let text = std::str::from_utf8(record.header(name)?).ok()?;
                        text.parse::<u64>().ok()
                    };
                    let place = number("__connect.errors.partition").zip(number("__connect.errors.offset"));
                    let (index, offset) = place.context("a dead letter does not say what it is of")?;
                    found.insert((u32::try_from(index)?, offset));
                }
                at = records.last_offset().context("a page of dead letters is empty")?.next();
            }
        }
        Ok(found)
    }

    /// The means to change counters by hand.
    pub(crate) fn tamper(&self) -> Tamper {
        Tamper(self.emulator.clone())
    }

    /// Whether the queue of row keys, the queued audit and the gaps are done with.
    pub(crate) async fn is_recounted(&self) -> anyhow::Result<bool> {
        let queued = self.calm.recounts.queued(None).await?;
        let audit = self.calm.recounts.audit_queued().await?;
        let gaps = self.calm.checkpoints.gaps().await?;
        Ok(queued.items.is_empty() && audit.is_none() && gaps.is_empty())
    }
}

/// Changes counters by hand, which no process is told of.
#[derive(Clone)]
pub(crate) struct Tamper(Emulator);

impl Tamper {
    /// Adds `amount` to a shard's rows and to the total, as a fault of an operator would.
    pub(crate) async fn inject(&self, key: &RowKey, amount: i64) -> bool {
        self.update(
            &key.counter,
            json!({
                "UpdateExpression": "ADD #s :d, #t :d, #v :one",
                "ConditionExpression": "attribute_exists(#p)",
                "ExpressionAttributeNames": {"#s": format!("s{}", key.shard), "#t": "likes", "#v": "version", "#p": "post_id"},
                "ExpressionAttributeValues": {":d": {"N": amount.to_string()}, ":one": {"N": "1"}},
            }),
        )
        .await
    }

    /// Sets the rows in the token of `run`, if it still stands.
    pub(crate) async fn set_token_rows(&self, id: &CounterId, shard: Shard, run: WindowRun, rows: i64) -> bool {
        self.update(
            id,
            json!({
                "UpdateExpression": "SET #h = :rows",
                "ConditionExpression": "#r = :run",
                "ExpressionAttributeNames": {"#h": format!("hs{shard}"), "#r": format!("hr{shard}")},
                "ExpressionAttributeValues": {":rows": {"N": rows.to_string()}, ":run": {"S": run.to_string()}},
            }),
        )
        .await
    }

    /// Puts the record of a threshold, as a process would that does not put it with the counter.
    pub(crate) async fn record(&self, id: &CounterId, milestone: &Milestone) -> bool {
        let Milestone { n, by, at, lag, version, exact, skipped } = milestone;
        let number = |number: &dyn std::fmt::Display| json!({"N": number.to_string()});
        let text = |text: &str| json!({"S": text});
        let mut item = json!({
            "pk": text(&format!("milestone#{}", id.stored())),
            "sk": text(&format!("{n:020}")),
            "n": number(n), "state": text(by.state()), "at": number(at), "lag": number(lag), "version": number(version),
            "exact": {"BOOL": exact}, "skipped": number(skipped), "digest": text(&milestone.digest(id)),
        });
        match by {
            Winner::Unwitnessed => {}
            Winner::Member(member) => item["member"] = text(member.as_str()),
            Winner::Events(Events { topic, partition, generation, from, to, nth, gained }) => {
                item["topic"] = text(topic);
                let numbers: [(&str, &dyn std::fmt::Display); 6] = [
                    ("partition", partition),
                    ("gen", generation),
                    ("from", from),
                    ("to", to),
                    ("nth", nth),
                    ("gained", gained),
                ];
                numbers.into_iter().for_each(|(name, value)| item[name] = number(value));
            }
        }
        undisturbed::send(&self.0, "PutItem", &json!({"TableName": "recounts", "Item": item})).await
    }

    async fn update(&self, id: &CounterId, mut body: Value) -> bool {
        body["TableName"] = json!("like_counts");
        body["Key"] = json!({"post_id": {"S": id.stored()}});
        undisturbed::send(&self.0, "UpdateItem", &body).await
    }
}

/// Ports of tables as a process holds them.
pub(crate) struct Tables {
    pub(crate) likes: Arc<dynamodb::Likes>,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) maps: Arc<dyn CounterMaps>,
    pub(crate) markers: Arc<dyn Markers>,
    pub(crate) counts: Arc<dyn Counts>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) recounts: Arc<dyn Recounts>,
    pub(crate) stream: Arc<dyn ChangeStream>,
}
