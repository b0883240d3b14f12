//! Shares counts between deployments in several Regions, so that each Region can answer the sum. A Region that has a
//! name publishes its counters in a topic (`published.rs`), and reads the topics of other Regions as a mirror copies
//! them here (`remote.rs`). A Region without a name does neither.

mod published;
mod remote;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tally_adapters::dynamodb::changes::Config;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::regions::Regions;
use tally_adapters::dynamodb::{Checkpoints, Connection, Topics};
use tally_adapters::kafka;
use tally_core::backoff::Backoff;
use tally_core::ids::Region;
use tally_core::ports::{Intake, Outcome, TopicReader, Transactions};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host, Invalid, Patience, Stage, Stop};
use tokio::sync::watch;

pub(crate) use published::Publisher;

use crate::args::RegionArgs;
use crate::log::partitions_of;
use remote::ReadRemote;

/// The wait between two reads of what consumers have stored.
const EVERY: Duration = Duration::from_secs(1);

/// Opens the writer of transactions that has this name.
type Writing = Arc<dyn Fn(&str) -> Box<dyn Transactions> + Send + Sync>;

/// How the topics of Regions are reached.
#[derive(Clone)]
pub struct RegionPorts {
    /// What this Region is called.
    pub name: Region,
    /// The topic that it publishes in.
    pub topic: String,
    /// The topic with the events of those counters that name no topic.
    pub usual: String,
    /// Reads the topic that this Region publishes in.
    pub reader: Arc<dyn TopicReader>,
    /// Opens a writer of it, under a name that one fold of a partition has at a time.
    pub transactions: Writing,
    /// The topics of the others.
    pub remotes: Vec<RemotePorts>,
}

/// How the topic of another Region is reached.
#[derive(Clone)]
pub struct RemotePorts {
    /// The Region.
    pub region: Region,
    /// Its topic, as it is copied here.
    pub topic: String,
    /// Reads the topic outside of any group.
    pub reader: Arc<dyn TopicReader>,
    /// Joins the group that shares out the topic's partitions.
    pub join: Arc<dyn Fn() -> Outcome<Box<dyn Intake>> + Send + Sync>,
}

impl RegionPorts {
    /// Returns ports over topics of a real Kafka, if the Region has a name.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub fn over(settings: &kafka::Settings, of: &RegionArgs, usual: &str, group: &str) -> anyhow::Result<Option<Self>> {
        let Some(name) = of.region_name.clone() else { return Ok(None) };
        let own = Self::without_remotes(settings, name, &of.counts_topic, usual, group)?;
        let remote = |(region, topic): &(Region, String)| -> anyhow::Result<RemotePorts> {
            let group = format!("{group}-{region}");
            let reader = Arc::new(kafka::TopicReader::new(settings, &group, topic)?);
            let join = Arc::new(kafka::joining(settings, &group, topic, None));
            Ok(RemotePorts { region: region.clone(), topic: topic.clone(), reader, join })
        };
        let remotes = of.remotes.iter().map(remote).collect::<anyhow::Result<_>>()?;
        Ok(Some(Self { remotes, ..own }))
    }

    /// Returns ports of a Region with this name over the topic `counts`, which read no other Region.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub fn without_remotes(
        settings: &kafka::Settings,
        name: Region,
        counts: &str,
        usual: &str,
        group: &str,
    ) -> anyhow::Result<Self> {
        let (topic, usual) = (counts.to_owned(), usual.to_owned());
        let reader = Arc::new(kafka::TopicReader::new(settings, group, counts)?);
        let settings = settings.clone();
        let transactions =
            move |id: &str| -> Box<dyn Transactions> { Box::new(kafka::Transactions::new(&settings, id)) };
        Ok(Self { name, topic, usual, reader, transactions: Arc::new(transactions), remotes: Vec::new() })
    }
}

/// What the folds of a named Region need to publish.
#[derive(Clone)]
pub(crate) struct Publishing {
    log: Config,
    ports: RegionPorts,
    counters: Arc<Counters>,
    store: Regions,
    /// Up to when everything that Kafka had acknowledged is in rows.
    safe: watch::Receiver<Topics>,
}

/// Names this Region, waits for its topic, and starts to read those of others. Returns what folds publish with.
///
/// # Errors
/// The topic has another number of partitions than the log, the Region has another name, or a stop.
pub(crate) async fn begin(
    host: &Host,
    ports: RegionPorts,
    connection: &Connection,
    log: &Config,
    patience: &Patience,
) -> anyhow::Result<Publishing> {
    let (store, names) = (Regions::new(connection), ports.remotes.iter().map(|remote| remote.region.clone()));
    let names: Vec<Region> = names.collect();
    host.wait_for("region", Backoff::STORE, || store.name(&ports.name, &names))
        .await
        .context("cannot name the Region")?;
    let look = || partitions_of(&*ports.reader, &ports.topic);
    let (_, found) = host.wait_for("counts topic", Backoff::STORE, look).await?;
    if found != log.partitions {
        let problem = format!("the topic has {found} partitions, and the log of changes {}", log.partitions);
        return Err(Invalid::setting("counts-topic", problem).into());
    }
    let known = watch::Sender::new(Topics::new(&ports.usual));
    let safe = known.subscribe();
    let deployment = Checkpoints::new(connection);
    let (_, named) = host.wait_for("region", Backoff::STORE, || deployment.defined()).await?;
    let adopted = watch::Sender::new(named.adopted);
    let tables = adopted.subscribe();
    let (claims, clock) = (Claims::new(connection, host.clock()), host.clock());
    let follow = move |stop| follow_safe(claims, deployment, known, adopted, clock, stop);
    host.spawn(Stage::Support, "safe times", follow);
    for remote in ports.remotes.clone() {
        let name = format!("remote {}", remote.region);
        let (own, partitions) = (log.deployment.clone(), log.partitions);
        let (store, patience, of, tables) = (store.clone(), patience.clone(), host.clone(), tables.clone());
        host.spawn(Stage::Intake, &name, ReadRemote { remote, own, partitions, store, tables, patience, host: of });
    }
    let counters = Arc::new(Counters::new(connection));
    Ok(Publishing { log: log.clone(), ports, counters, store, safe })
}

/// Reads, again and again, up to when everything acknowledged was a row, and when other tables were `adopted` last.
async fn follow_safe(
    claims: Claims,
    deployment: Checkpoints,
    known: watch::Sender<Topics>,
    adopted: watch::Sender<Option<UnixMillis>>,
    clock: Clock,
    stop: Stop,
) -> anyhow::Result<()> {
    let read = async || {
        let (defined, named) = deployment.defined().await?;
        adopted.send_if_modified(|adopted| std::mem::replace(adopted, named.adopted) != named.adopted);
        let before = known.borrow().clone();
        before.read(&claims, defined.definitions).await
    };
    loop {
        match stop.unless_requested(read()).await? {
            Ok(read) => _ = known.send_replace(read),
            // Meanwhile this Region publishes the times that were read before.
            Err(fault) => tracing::debug!(error = %fault, "what consumers have stored cannot be read"),
        }
        stop.unless_requested(clock.sleep(EVERY)).await?;
    }
}
