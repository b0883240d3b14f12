//! Watches a deployment's configuration and tables while a process runs. The task [`Watch`] looks each second, and
//! [`TablesWatch`] tells other parts of the process what it saw. A table that was deleted and created anew under its
//! name causes no error: it answers that it has no items.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use parking_lot::RwLock;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host, Readiness, Stop, Task};
use tokio::time::{Instant, timeout, timeout_at};

use super::changes::Changes;
use super::checkpoints::Checkpoints;
use super::connection::{CHECKPOINTS, Connection};
use super::table::Consistency;
use super::table_ids::SeenTables;

/// The wait between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long looks may fail before the process is not ready.
const LIMIT: Duration = Duration::from_secs(5);
/// The readiness condition.
const CONDITION: &str = "tables";
/// The kind of the losses that this module opens.
pub(super) const LOSS: &str = "table";

/// What is known of the tables: whether they are those that the deployment was created over. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TablesWatch(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What is wrong with the tables, and what to do about it.
    problem: Option<String>,
    /// The tables that nothing may be written to.
    closed: BTreeSet<&'static str>,
    /// Whether something is wrong with the tables, or counters may be those of other rows until a recount has passed.
    is_lossy: bool,
}

impl TablesWatch {
    /// Returns whether nothing is known to be wrong. No answer is exact while something is: a table is gone or another
    /// one, or the loss that this was is still open. A standing that knows of the loss does not suffice, since counters
    /// are wrong before its announcement, too.
    pub fn is_whole(&self) -> bool {
        !self.0.read().is_lossy
    }

    /// Transient while nothing may be written to `table`: the table or the configuration is gone or another one.
    pub(super) fn open_to(&self, table: &str) -> Outcome<()> {
        let known = self.0.read();
        if known.closed.contains(table) || known.closed.contains(CHECKPOINTS) {
            return Err(Fault::Transient(known.problem.clone().unwrap_or_default()));
        }
        Ok(())
    }

    /// Stores what is known now, and logs what is new.
    fn tell(&self, known: Known) {
        let mut before = self.0.write();
        match (&before.problem, &known.problem) {
            (before, Some(problem)) if before.as_ref() != Some(problem) => {
                tracing::error!("nothing is called exact: {problem}");
            }
            (Some(_), None) => tracing::info!("the tables are those of this deployment again"),
            _ => {}
        }
        *before = known;
    }
}

impl SeenTables {
    fn known(&self, is_lossy: bool) -> Known {
        Known { problem: self.problem(), closed: self.closed(), is_lossy }
    }
}

/// The last adoption of tables, once a look has found no open loss after it. The outer `None`: no look has yet.
struct Settled(Option<Option<String>>);

/// Looks at the tables: transient while they are not those that the deployment was created over.
async fn require_whole(connection: &Connection) -> Outcome<Settled> {
    let look = Checkpoints::new(connection).look(Consistency::Strong).await?;
    let problem = look.tables.problem();
    let is_lossy = problem.is_some() || has_loss(&Changes::new(connection)).await?;
    connection.watch.tell(look.tables.known(is_lossy));
    problem.map_or(Ok(Settled((!is_lossy).then_some(look.adopted))), |problem| Err(Fault::Transient(problem)))
}

/// Returns whether a loss of a table is open.
async fn has_loss(changes: &Changes) -> Outcome<bool> {
    Ok(changes.losses().await?.open().any(|(_, loss)| loss.kind == LOSS))
}

/// Opens the loss of a table, unless it is stored already.
pub(super) async fn open_loss(changes: &Changes, now: UnixMillis, what: &str) -> Outcome<()> {
    if changes.open_loss_once(now, LOSS, what).await? {
        tracing::error!(kind = LOSS, what, "something is lost: nothing is called exact until a recount has passed");
    }
    Ok(())
}

/// The task that looks at the tables each second.
pub(crate) struct Watch {
    connection: Connection,
    /// How many shards the deployment had when this process began.
    shards: ShardCount,
    clock: Clock,
    readiness: Readiness,
    /// The losses that this process has opened.
    opened: BTreeSet<String>,
    settled: Settled,
    stores_losses: bool,
}

impl Watch {
    /// Waits until the tables are those that the deployment was created over, and returns the task that watches them. It
    /// stores losses that it finds if it `stores_losses`, in a process that may write what is stored of the log.
    pub(crate) async fn begin(
        connection: &Connection,
        shards: ShardCount,
        stores_losses: bool,
        host: &Host,
    ) -> anyhow::Result<Self> {
        let settled = host.wait_for("tables", Backoff::STORE, || require_whole(connection)).await?;
        let (connection, clock, readiness) = (connection.clone(), host.clock(), host.readiness().clone());
        Ok(Self { connection, shards, clock, readiness, opened: BTreeSet::new(), settled, stores_losses })
    }

    /// Looks once. Returns the fault of a failed request, which says nothing about the tables.
    async fn look(&mut self) -> anyhow::Result<Outcome<()>> {
        let checkpoints = Checkpoints::new(&self.connection);
        let looks = in_time(async {
            let look = checkpoints.look(Consistency::Eventual).await?;
            // An eventual read may be old, so a strong one confirms what seems wrong.
            if look.is_as(self.shards) { Ok(look) } else { checkpoints.look(Consistency::Strong).await }
        });
        let look = match looks.await {
            Ok(look) => look,
            Err(fault) => {
                tracing::debug!(error = %fault, "the tables cannot be looked at");
                return Ok(Err(fault));
            }
        };
        if let Some(format) = look.format {
            format.known()?;
        }
        let shards = look.shards.unwrap_or(self.shards);
        ensure!(shards == self.shards, "this deployment has {shards} shards now, and had {} before", self.shards);
        let problem = look.tables.problem();
        match &problem {
            Some(problem) => self.readiness.not_ready(CONDITION, problem),
            None => self.readiness.ready(CONDITION),
        }
        let is_lossy = problem.is_some() || self.settled.0.as_ref() != Some(&look.adopted);
        self.connection.watch.tell(look.tables.known(is_lossy));
        if !is_lossy {
            return Ok(Ok(()));
        }
        self.settled = Settled(None);
        self.open_losses(&look.tables).await;
        if problem.is_none()
            && let Ok(false) = in_time(has_loss(&Changes::new(&self.connection))).await
        {
            self.settled = Settled(Some(look.adopted));
            self.connection.watch.tell(Known::default());
        }
        Ok(Ok(()))
    }

    /// Opens a loss for each table that is gone or another one. Tries what fails again with the next look.
    async fn open_losses(&mut self, tables: &SeenTables) {
        if !self.stores_losses || tables.stored.is_none() {
            return;
        }
        let changes = Changes::new(&self.connection);
        for problem in tables.problems() {
            if self.opened.contains(&problem.lost) {
                continue;
            }
            match in_time(open_loss(&changes, self.clock.now(), &problem.lost)).await {
                Ok(()) => _ = self.opened.insert(problem.lost),
                Err(fault) => tracing::warn!(error = %fault, lost = problem.lost, "a loss is not stored yet"),
            }
        }
    }
}

async fn in_time<T>(call: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let late = |_| Fault::Transient(format!("no answer within {PATIENCE:?}"));
    timeout(PATIENCE, call).await.map_err(late)?
}

impl Task for Watch {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let (readiness, mut answered) = (self.readiness.clone(), Instant::now());
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            let mut look = Box::pin(self.look());
            // After this process itself stood still, a look without an answer has a second.
            let limit = (answered + LIMIT).max(Instant::now() + EVERY);
            let silent = format!("no look at the tables has succeeded for {LIMIT:?}");
            let in_time = stop.unless_requested(timeout_at(limit, &mut look)).await?;
            let looked = if let Ok(looked) = in_time {
                looked?
            } else {
                readiness.not_ready(CONDITION, silent.clone());
                stop.unless_requested(look).await??
            };
            match looked {
                Ok(()) => answered = Instant::now(),
                Err(fault) if answered.elapsed() >= LIMIT => {
                    readiness.not_ready(CONDITION, format!("{silent}: {fault}"));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}
