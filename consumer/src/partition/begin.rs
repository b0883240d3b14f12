//! A partition is claimed, and what is known of it is brought together: where it is read from, or why it stands still.

use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use tally_adapters::dynamodb::claims::Confirmed;
use tally_core::fault::Fault;
use tally_core::fence::{Offset, Partition};
use tally_core::ports::{Outcome, OwnedPartition};
use tally_core::register::{Claim, Ends, Found, Progress, Replay, Start, Topic};

use super::keeping::name_growth;
use super::reading::Reading;
use super::writing::Writing;
use super::{EVERY, End, Held, Shared};
use crate::metrics;

/// Claims the partition and begins to read it.
///
/// The store had refused `refused` records in a row before.
pub(super) async fn begin(log: &Arc<dyn OwnedPartition>, shared: &Arc<Shared>, refused: u32) -> Result<Held, End> {
    let again = |fault: Fault| End::Again(format!("cannot begin: {fault}"));
    // Raised before anything else is looked at: what an earlier owner stores later is refused.
    let slept = shared.slept();
    let (claim, confirmed) = shared.claims.raise(log.partition()).await.map_err(again)?;
    let topic = topic(shared, log.partition()).await.map_err(again)?;
    let said = (log.log().await.map_err(again)?, log.partitions().await.map_err(again)?);
    let committed = log.committed().await.map_err(again)?;
    let index = log.partition().index;
    let found = Found { claim: &claim, topic: &topic, index, log: &said.0, partitions: said.1, committed };
    let start = found.start(shared.claims.time().latest, shared.settings.tombstones).map_err(End::Stands)?;
    name_growth(shared, log.partition(), said.1, topic.current().partitions());
    let held = Beginning { log, shared, topic, claim, confirmed, start, refused, slept };
    held.begin().await.map_err(again)?.ok_or_else(|| End::Again("another consumer has claimed it".to_owned()))
}

/// What is known of the topic; all that Kafka says of it where it is read for the first time.
async fn topic(shared: &Shared, partition: &Partition) -> Outcome<Topic> {
    if let Some(topic) = shared.claims.topic(&partition.topic).await? {
        return Ok(topic);
    }
    let logs = shared.reader.logs().await?;
    let missing = || Fault::Transient(format!("there is no topic `{}`", partition.topic));
    let id = logs.first().ok_or_else(missing)?.1.topic.clone();
    let begins: Vec<Offset> = logs.into_iter().map(|(_, log)| log.start).collect();
    shared.claims.begin_topic(&partition.topic, &Topic::first(id, begins)).await
}

struct Beginning<'a> {
    log: &'a Arc<dyn OwnedPartition>,
    shared: &'a Arc<Shared>,
    topic: Topic,
    claim: Claim,
    confirmed: Confirmed,
    start: Start,
    refused: u32,
    slept: std::time::Duration,
}

impl Beginning<'_> {
    /// Reads from the start on, with the loss of a replay opened before; `None` where the claim was raised meanwhile.
    async fn begin(self) -> Outcome<Option<Held>> {
        let Self { log, shared, topic, claim, confirmed, start, refused, slept } = self;
        let partition = log.partition();
        if shared.claims.keep(partition, claim.n, &start.kept).await?.is_none() {
            return Ok(None);
        }
        // Once the claim says that the partition replays: an audit closes the loss of one that does not.
        if let Some(until) = start.replay {
            open_loss(shared, partition, &claim, until).await?;
        }
        let definitions = shared.deployment.definitions().await?;
        log.start_at(start.at).await?;
        let (offset, replays_to) = (start.at, start.replay.map(|until| until.0));
        metrics::claimed(replays_to.is_some());
        tracing::info!(%partition, %offset, claim = claim.n, replays_to, "reading");
        Ok(Some(Held {
            reading: Reading::new(&definitions, &partition.topic, start.at),
            progress: Progress::new(start.at).behind_refusals(refused),
            writing: Writing::default(),
            log: Arc::clone(log),
            shared: Arc::clone(shared),
            topic: Arc::new(topic),
            n: claim.n,
            confirmed,
            rereads_to: start.kept.sent,
            kept: start.kept,
            ends: Ends::default(),
            under_way: FuturesUnordered::new(),
            permit: None,
            keep_at: shared.at() + EVERY,
            keeps: false,
            unkept: 0,
            idle_at: None,
            looks_ahead: false,
            asks: false,
            slept,
            behind_since: None,
            doubted: refused > 0,
            letters: 0,
            rejected: 0,
            applied: 0,
            _state: metrics::InState::reading(),
        }))
    }
}

/// Opens the loss of a replay, unless one is open since it began: removed members may come back until it has passed.
async fn open_loss(shared: &Shared, partition: &Partition, claim: &Claim, until: Offset) -> Outcome<()> {
    let what = Replay { partition: partition.clone(), until }.to_string();
    let goes_on = claim.kept.as_ref().is_some_and(|kept| kept.replay.is_some());
    let losses = shared.changes.losses().await?;
    if goes_on && losses.open().any(|(_, loss)| loss.kind == Replay::LOSS && loss.what == what) {
        return Ok(());
    }
    let number = shared.changes.open_new_loss(shared.host.clock().now(), Replay::LOSS, &what).await?;
    tracing::error!(%partition, %number, %until, "replaying: nothing is called exact until a recount has passed");
    Ok(())
}
