//! The relay: copies the stream of the likes table into the log `changes`. `follow.rs` finds the stream shards and
//! shares them out by leases, `reader.rs` reads each of them, and `writer.rs` writes the log for all of them. `tip.rs`
//! and `lateness.rs` judge up to when everything is read; `ahead.rs` holds the relay back in the local stack.

mod ahead;
mod follow;
mod lateness;
mod reader;
mod tip;
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Changes, Losses};
use tally_core::changes::{DeploymentId, LossNumber};
use tally_core::milestone::Ladder;
use tally_core::ports::{ChangeStream, Producer};
use tally_core::shards::Worker;
use tally_service::{Host, Patience, Stage};
use tokio::sync::watch;

use ahead::{Ahead, FollowFolds};
use follow::{Follow, Sharing};
use lateness::{Canaries, Lateness};
use writer::Writer;
pub(crate) use writer::Writing;

use crate::args::Rules;
use crate::ladder::Ladders;

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

impl Relaying {
    /// Starts the tasks of the relay.
    pub fn spawn(self, host: &Host, patience: &Patience) {
        let (writing, asked) = writer::channel();
        let sharing = self.rules.lease.map(|stale| {
            let me = Worker(format!("{:016x}", host.chance().token()));
            Sharing { me, stale }
        });
        let lateness = Lateness::default();
        let ahead = Arc::new(Ahead::new(self.rules.ahead));
        if self.rules.ahead.is_some() {
            let (ahead, store, clock) = (Arc::clone(&ahead), Arc::clone(&self.store), host.clock());
            let follow = FollowFolds { ahead, store, partitions: self.partitions, clock };
            host.spawn(Stage::Support, "follow folds", follow);
        }
        let writer = Writer::new(self.clone(), host, patience.clone(), asked, ahead);
        host.spawn(Stage::Work, "write changes", writer);
        let ladders = Ladders { writing: writing.clone(), ladder: self.ladder.clone() };
        host.spawn(Stage::Intake, "announce milestones", ladders);
        let (store, clock, chance) = (Arc::clone(&self.store), host.clock(), host.chance().fork());
        let canaries = Canaries { store, lateness: lateness.clone(), clock, chance };
        host.spawn(Stage::Intake, "canaries", canaries);
        let follow = Follow::new(self, host.clone(), patience.clone(), writing, sharing, lateness);
        host.spawn(Stage::Support, "follow stream", follow);
    }
}
