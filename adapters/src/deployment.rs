//! What a process does before its own work: it waits for the tables, checks them, and learns how many shards each post has in
//! this deployment. From then on it follows in which format the deployment is written, and whether its tables are still those
//! that it was created over.

use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_service::{Host, Invalid, Stage, Unfit};

use crate::dynamodb::counters::Counters;
use crate::dynamodb::{self, Checkpoints, Connection, Missing, Watch};

/// What the start waits for.
const NAME: &str = "deployment";

/// A new deployment over the rows of another would count by another number of shards, and read Kafka from its start.
const CONFIGURATION_LOST: &str = "the likes table has rows, and the checkpoints table has no `config`: it was lost, or restored \
                                  without the other table. Nothing starts over it: restore it, or run `tally adopt tables --shards N` \
                                  with the number of shards that the rows were written with";

/// The deployment that a process is part of.
#[derive(Clone, Copy)]
pub struct Deployment<'a> {
    /// Its tables.
    pub tables: &'a Connection,
    /// What `--shards` says; it has to be what the deployment was created with.
    pub shards: Option<ShardCount>,
}

impl Deployment<'_> {
    /// For a process that writes rows or counts: it creates the deployment if it is new. Safe to repeat: the
    /// configuration is put only where there is none.
    ///
    /// # Errors
    /// Tables of another shape, rows without a configuration, a format that this build does not know, another number of
    /// shards, a fault that waiting does not mend, or a stop.
    pub async fn create(self, host: &Host) -> anyhow::Result<ShardCount> {
        self.check_tables(host).await?;
        // Asked for each time, so that what is granted for it is used.
        let has_rows = host.wait_for(NAME, Backoff::STORE, || dynamodb::holds_items(self.tables)).await?;
        let checkpoints = Checkpoints::new(self.tables);
        match host.wait_for(NAME, Backoff::STORE, || checkpoints.format()).await? {
            Some(stated) => stated.known()?,
            None if has_rows => return Err(Unfit(CONFIGURATION_LOST.to_owned()).into()),
            None => {}
        }
        let created = host.wait_for(NAME, Backoff::STORE, || checkpoints.config(self.shards)).await?;
        let watch = self.watch(created, host).await?;
        // Asked for each time, as above.
        let counters = Counters::new(self.tables);
        if !host.wait_for("tables", Backoff::STORE, || counters.renew_reserved()).await? {
            tracing::error!(
                "the table like_counts was emptied: run `tally adopt tables`, nothing is called exact before"
            );
        }
        self.follow(created, watch.storing_losses(), host)
    }

    /// Waits for as long as the tables are others than those that the deployment was created over; who watches them from then on.
    async fn watch(&self, created: ShardCount, host: &Host) -> anyhow::Result<Watch> {
        let settled = host.wait_for("tables", Backoff::STORE, || dynamodb::require_whole(self.tables)).await?;
        Ok(Watch::new(self.tables, settled, created, host))
    }

    /// For a process that only reads: it waits until one that writes has created the deployment.
    ///
    /// # Errors
    /// The same.
    pub async fn join(self, host: &Host) -> anyhow::Result<ShardCount> {
        self.check_tables(host).await?;
        let missing = || Fault::Transient("no consumer or change-streamer has created it yet".to_owned());
        let checkpoints = Checkpoints::new(self.tables);
        let stated = || async {
            // The rows before the configuration: it is created before the first of them.
            let had_rows = dynamodb::held_items(self.tables).await?;
            match checkpoints.format().await? {
                Some(stated) => Ok(Ok(stated)),
                // Nothing waits for it over rows.
                None if had_rows => Ok(Err(Unfit(CONFIGURATION_LOST.to_owned()))),
                None => Err(missing()),
            }
        };
        host.wait_for(NAME, Backoff::STORE, stated).await??.known()?;
        let created = || async { checkpoints.deployed().await?.ok_or_else(missing) };
        let created = host.wait_for(NAME, Backoff::STORE, created).await?;
        let watch = self.watch(created, host).await?;
        self.follow(created, watch, host)
    }

    async fn check_tables(&self, host: &Host) -> anyhow::Result<()> {
        host.clock().correct_by(self.tables.store_clock());
        let missing = host.wait_for("tables", Backoff::STORE, || async {
            let missing = self.tables.missing().await?;
            if missing.is_none() {
                dynamodb::check_tables(self.tables).await?;
            }
            Ok(missing)
        });
        let Some(Missing { variable, problem }) = missing.await? else { return Ok(()) };
        let mut invalid = Invalid::none();
        invalid.add_variable(variable, problem);
        Err(invalid.into())
    }

    /// From here on the process stops by itself once the deployment is written in a format that this build does not know, and is
    /// not ready while its tables are others.
    fn follow(self, created: ShardCount, watch: Watch, host: &Host) -> anyhow::Result<ShardCount> {
        let told = self.shards.unwrap_or(created);
        if told != created {
            return Err(Unfit(format!("--shards is {told}, but this deployment was created with {created}")).into());
        }
        host.spawn(Stage::Intake, "format", watch);
        Ok(created)
    }
}
