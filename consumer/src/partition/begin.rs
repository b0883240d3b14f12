//! Claims a partition for this consumer, and finds out from the claim, the topic and Kafka where to read on, or why it
//! stands still. The claim is an item in the store: it says which process writes the partition's rows, and how far they
//! are.

use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use tally_adapters::dynamodb::Usual;
use tally_core::fault::Fault;
use tally_core::ports::{Outcome, OwnedPartition};
use tally_core::register::{Claim, Ends, Found, Progress, Replay, Standstill, Start, Topic, last_read_in};
use tally_core::topic::{Offset, Partition};

use super::keeping::{Tail, name_growth};
use super::reading::Reading;
use super::shown::Shown;
use super::writing::Writing;
use super::{EVERY, End, Held, Shared};
use crate::metrics;

/// Claims the partition and begins to read it. If it has to replay, opens that loss before.
///
/// The store had refused so many `refusals` in a row before.
pub(super) async fn begin(
    log: &Arc<dyn OwnedPartition>,
    shared: &Arc<Shared>,
    shown: &mut Shown,
    refusals: u32,
) -> Outcome<Result<Held, End>> {
    let partition = log.partition();
    // The claim is raised before anything else is looked at: what an earlier owner stores later is refused.
    let (slept, (claim, confirmed)) = (shared.slept(), shared.claims.raise(partition).await?);
    let usual = shared.deployment.usual().await?;
    let (topic, misfit) = topic(shared, partition, &usual).await?;
    let (said, partitions, committed) = (log.log().await?, log.partitions().await?, log.committed().await?);
    let there = shared.reader.fingerprint(partition, last_read_in(&claim, &said).map(|last| last.at)).await?;
    let found =
        Found { claim: &claim, topic: &topic, index: partition.index, log: &said, partitions, committed, there };
    let start = || found.start(shared.claims.time().latest, shared.settings.tombstones);
    let Start { at, replay, kept } = match misfit.map_or_else(start, Err) {
        Ok(start) => start,
        Err(standstill) => {
            shown.lag_while_it_stands(shared, partition, &found).await;
            return Ok(Err(End::Stands(standstill)));
        }
    };
    shown.lag(partition, [at, said.end], None, shared.claims.time().earliest);
    name_growth(shared, partition, partitions, topic.current().partitions());
    if shared.claims.keep(partition, claim.n, &kept).await?.is_none() {
        return Ok(Err(End::Again("another consumer has claimed it, or tally has raised the claim".to_owned())));
    }
    // Opened once the claim says that the partition replays: an audit closes the loss of a partition that does not.
    if let Some(until) = replay {
        open_loss(shared, partition, &claim, until).await?;
    }
    log.start_at(at).await?;
    let replays_to = replay.map(|until| until.0);
    metrics::CLAIMS.counter(&[]).increment(1);
    metrics::REPLAYS.counter(&[]).increment(u64::from(replay.is_some()));
    tracing::info!(%partition, offset = %at, claim = claim.n, replays_to, "reading");
    shown.reads(shared, partition, at);
    Ok(Ok(Held {
        reading: Reading::new(&usual.definitions, &partition.topic, at),
        progress: Progress::new(at).behind_refusals(refusals),
        writing: Writing::default(),
        log: Arc::clone(log),
        shared: Arc::clone(shared),
        topic: Arc::new(topic),
        n: claim.n,
        confirmed,
        rereads_to: kept.sent,
        tail: Tail::behind(kept.last),
        kept,
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
        letters: 0,
        rejected: 0,
        applied: 0,
        shown: std::mem::take(shown),
    }))
}

/// Returns what is stored of the topic, and why no consumer may write its events. The first consumer of the topic stores what
/// Kafka says of it. If no definition names the topic and no usual one is stored, this names it as the usual one before
/// that. Safe to repeat: what is stored stays.
async fn topic(shared: &Shared, partition: &Partition, usual: &Usual) -> Outcome<(Topic, Option<Standstill>)> {
    let name = &*partition.topic;
    let stored = shared.claims.topic(name).await?;
    let misfit = usual.misfit(name);
    let names = misfit.is_none() && usual.is_open_to(name);
    if names && !shared.deployment.move_usual(usual, name).await? {
        return Err(Fault::Transient(
            "there is no `config`, or its topic or counters were changed meanwhile".to_owned(),
        ));
    }
    if let Some(topic) = stored {
        return Ok((topic, misfit));
    }
    let logs = shared.reader.logs().await?;
    let missing = || Fault::Transient(format!("there is no topic `{name}`"));
    let id = logs.first().ok_or_else(missing)?.1.topic.clone();
    let begins: Vec<Offset> = logs.into_iter().map(|(_, log)| log.start).collect();
    let first = Topic::first(id, begins);
    if misfit.is_some() {
        return Ok((first, misfit));
    }
    Ok((shared.claims.begin_topic(name, &first).await?, None))
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
