//! The relay: copies the stream of the likes table into the log `changes`. `follow.rs` finds the stream shards and
//! shares them out by leases, `reader.rs` reads each of them, and `writer.rs` writes the log for all of them. `tip.rs`
//! and `lateness.rs` judge up to when everything is read.

mod follow;
mod lateness;
mod reader;
mod tip;
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Changes, Losses};
use tally_core::changes::{Body, DeploymentId, LossNumber, Lost};
use tally_core::milestone::Ladder;
use tally_core::ports::{ChangeStream, Producer};
use tally_core::shards::Worker;
use tally_service::{Host, Patience, Stage, Stop, Until};
use tokio::sync::watch;

use follow::{Follow, Sharing};
use lateness::{Lateness, write_canaries};
use writer::Writer;
pub(crate) use writer::Writing;

use crate::args::Rules;
use crate::{ladder, metrics};

/// Kinds of losses that the log itself shows: a message is missing, or a fold's position is not in the log any more.
pub(crate) const HOLE: &str = "hole";
pub(crate) const JUMP: &str = "jump";

/// How often all stream shards are announced again while such a loss is open: the log may lose the announcement, too.
const AGAIN: Duration = Duration::from_secs(30);

/// Returns the open losses of these kinds.
fn of_log(losses: &Losses) -> BTreeSet<LossNumber> {
    let open = losses.open().filter(|(_, loss)| loss.kind == HOLE || loss.kind == JUMP);
    open.map(|(number, _)| number).collect()
}

/// What the tasks of a relay share.
#[derive(Clone)]
pub struct Relaying {
    /// The stream of the likes table.
    pub stream: Arc<dyn ChangeStream>,
    /// Stores which stream shards there are, how far each is fed, the leases and the losses.
    pub store: Arc<Changes>,
    /// Writes the log.
    pub producer: Arc<dyn Producer>,
    /// The name of the log's topic.
    pub topic: Arc<str>,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// The deployment that the log belongs to.
    pub deployment: DeploymentId,
    /// How the stream is followed.
    pub rules: Rules,
    /// The thresholds of milestones, which are announced in the log whenever they are raised.
    pub ladder: watch::Receiver<Ladder>,
}

/// What the tasks that read the stream share.
#[derive(Clone)]
struct Reading {
    stream: Arc<dyn ChangeStream>,
    store: Arc<Changes>,
    rules: Rules,
    patience: Patience,
    writing: Writing,
    lateness: Lateness,
}

impl Reading {
    /// Stores a loss and announces it in every partition. If the process dies in between, other relays announce the
    /// stored loss.
    async fn lose(&self, kind: &'static str, what: &str, stop: &Stop) -> anyhow::Result<LossNumber> {
        let now = self.patience.clock().now();
        let open = || self.store.open_new_loss(now, kind, what);
        let number = self.patience.persist("store a loss", Until::Requested(stop), open).await?;
        metrics::GAPS.counter(&[kind]).increment(1);
        tracing::error!(kind, what, %number, "something is lost: nothing is called exact until a recount has passed");
        self.writing.announce(Body::Lost(Lost { number, next: None })).await?;
        Ok(number)
    }
}

impl Relaying {
    /// Starts the tasks of the relay.
    pub fn spawn(self, host: &Host, patience: &Patience) {
        let sharing = self.rules.lease.map(|stale| {
            let me = Worker(format!("{:016x}", host.chance().token()));
            Sharing { me, stale }
        });
        let lateness = Lateness::default();
        let (writing, writer) = Writer::new(self.clone(), host, patience.clone());
        host.spawn(Stage::Work, "write changes", writer);
        let announce = ladder::announce(writing.clone(), self.ladder.clone());
        host.spawn(Stage::Intake, "announce milestones", async move |stop: Stop| {
            _ = stop.unless_requested(announce).await;
            Ok(())
        });
        let (store, clock, chance) = (Arc::clone(&self.store), host.clock(), host.chance().fork());
        let seen = lateness.clone();
        host.spawn(Stage::Intake, "canaries", move |stop| write_canaries(store, seen, clock, chance, stop));
        let Self { stream, store, rules, .. } = self;
        let reading = Reading { stream, store, rules, patience: patience.clone(), writing, lateness };
        host.spawn(Stage::Support, "follow stream", Follow::new(reading, host.clone(), sharing));
    }
}
