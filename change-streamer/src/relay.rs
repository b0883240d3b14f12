//! The relay: copies the stream of the likes table into the log `changes`. `follow.rs` finds the stream shards and
//! shares them out by leases, `reader.rs` reads each of them, and `writer.rs` writes the log for all of them. `tip.rs`
//! and `lateness.rs` judge up to when everything is read; [`Ahead`] holds the relay back in the local stack.

mod follow;
mod lateness;
mod reader;
mod tip;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_adapters::dynamodb::changes::{Changes, Losses};
use tally_core::cached::StandingAt;
use tally_core::changes::{Body, DeploymentId, LossNumber, Lost};
use tally_core::milestone::Ladder;
use tally_core::ports::log::Written;
use tally_core::ports::{ChangeStream, Producer};
use tally_core::shards::Worker;
use tally_core::topic::Offset;
use tally_service::{Clock, Host, Patience, Stage, Stop, Until};
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
pub(crate) struct Relaying {
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
    pub(crate) fn spawn(self, host: &Host, patience: &Patience) {
        let sharing = self.rules.lease().map(|stale| {
            let me = Worker(format!("{:016x}", host.chance().token()));
            Sharing { me, stale }
        });
        let lateness = Lateness::default();
        let ahead = Arc::new(Ahead::new(self.rules.ahead));
        if self.rules.ahead.is_some() {
            let (ahead, store, clock) = (Arc::clone(&ahead), Arc::clone(&self.store), host.clock());
            let follow = move |stop| follow_folds(ahead, store, self.partitions, clock, stop);
            host.spawn(Stage::Support, "follow folds", follow);
        }
        let (writing, writer) = Writer::new(self.clone(), host, patience.clone(), ahead);
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

/// How often the relay reads how far the folds are.
const EVERY: Duration = Duration::from_millis(200);

/// The messages that this process has written and that the folds have not read yet. It holds the relay back while it is
/// too far ahead of a fold, in the local stack, whose Kafka deletes what was not read.
#[derive(Debug)]
struct Ahead {
    /// How many bytes of a partition that may be; `None`: any number.
    most: Option<usize>,
    /// How many bytes each of these messages has, by its partition and offset.
    sent: Mutex<BTreeMap<u32, BTreeMap<Offset, usize>>>,
    /// Whether the relay has to wait before it writes more.
    held: watch::Sender<bool>,
}

impl Ahead {
    fn new(most: Option<usize>) -> Self {
        Self { most, sent: Mutex::default(), held: watch::Sender::default() }
    }

    /// Takes note of a message of so many bytes that was written.
    fn sent(&self, Written { partition, offset }: Written, bytes: usize) {
        if self.most.is_some() {
            self.change(|sent| _ = sent.entry(partition).or_default().insert(offset, bytes));
        }
    }

    /// Takes note of how far the folds are.
    fn folded(&self, standings: &BTreeMap<u32, StandingAt>) {
        self.change(|sent| {
            for (partition, messages) in sent {
                let folded = standings.get(partition).map_or(Offset(0), |stored| stored.at.offset());
                *messages = messages.split_off(&folded);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u32, BTreeMap<Offset, usize>>)) {
        let mut sent = self.sent.lock();
        change(&mut sent);
        let is_ahead = |most| sent.values().any(|messages| messages.values().sum::<usize>() > most);
        let held = self.most.is_some_and(is_ahead);
        self.held.send_if_modified(|before| std::mem::replace(before, held) != held);
    }
}

/// Reads how far the folds are, again and again.
async fn follow_folds(
    ahead: Arc<Ahead>,
    store: Arc<Changes>,
    partitions: u32,
    clock: Clock,
    stop: Stop,
) -> anyhow::Result<()> {
    while stop.unless_requested(clock.sleep(EVERY)).await.is_ok() {
        match stop.unless_requested(store.standings(partitions)).await? {
            Ok(standings) => ahead.folded(&standings),
            Err(fault) => tracing::debug!(error = %fault, "the standings cannot be read"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tally_core::changes::Place;

    use super::*;

    #[test]
    fn a_relay_is_held_while_the_folds_are_more_than_so_many_bytes_behind_in_any_partition() {
        let ahead = Ahead::new(Some(100));
        let held = ahead.held.subscribe();
        let written = |partition, offset| Written { partition, offset: Offset(offset) };
        for (partition, offset, is_held) in [(0, 0, false), (0, 1, false), (1, 0, false), (0, 2, true)] {
            ahead.sent(written(partition, offset), 50);
            assert_eq!(*held.borrow(), is_held, "{partition} {offset}");
        }
        let at = |offset| StandingAt { at: Place::new(1, Offset(offset)), ..StandingAt::default() };
        ahead.folded(&[(1, at(1))].into());
        assert!(*held.borrow());
        ahead.folded(&[(0, at(1))].into());
        assert!(!*held.borrow());
        let free = Ahead::new(None);
        free.sent(written(0, 0), 1 << 40);
        assert!(!*free.held.borrow());
    }
}
