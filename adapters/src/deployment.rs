//! What a process that uses the tables does before its own work. [`Deployment::create`] and [`Deployment::join`] wait
//! for the four DynamoDB tables, check them, and return into how many shards (parts) the rows of each post are divided.
//! From then on a task watches whether this build knows the format in which the deployment stores its data, and whether
//! the tables are still those that it was created over.

use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_service::{Host, Stage, Unfit};

use crate::dynamodb::counters::Counters;
use crate::dynamodb::{self, Checkpoints, Connection, Watch};

/// The name in logs of what the start waits for.
const NAME: &str = "deployment";

/// The error where there are rows and no configuration. A new deployment over the rows of another one would use another
/// number of shards, and read Kafka from the start.
const CONFIGURATION_LOST: &str = "the likes table has rows, and the checkpoints table has no `config`: it was lost, or restored \
                                  without the other table. Nothing starts over it: restore it, or run `tally adopt tables --shards N` \
                                  with the number of shards that the rows were written with";

/// A deployment that a process creates or joins when it starts.
#[derive(Clone, Copy)]
pub struct Deployment<'a> {
    pub tables: &'a Connection,
    /// The value of `--shards`. It has to be what the deployment was created with.
    pub shards: Option<ShardCount>,
}

impl Deployment<'_> {
    /// For a process that writes rows or counts: creates the deployment if it is new, and returns its number of shards.
    /// Safe to repeat: writes the configuration only where there is none.
    ///
    /// # Errors
    /// Tables of another shape, rows without a configuration, a format that this build does not know, another number of
    /// shards, a fault that waiting does not mend, or a stop.
    pub async fn create(self, host: &Host) -> anyhow::Result<ShardCount> {
        self.check_tables(host).await?;
        // Every start asks, so that the permission for this request is used although the answer seldom matters.
        let has_rows = host.wait_for(NAME, Backoff::STORE, || dynamodb::holds_items(self.tables)).await?;
        let checkpoints = Checkpoints::new(self.tables);
        match host.wait_for(NAME, Backoff::STORE, || checkpoints.format()).await? {
            Some(stated) => stated.known()?,
            None if has_rows => return Err(Unfit(CONFIGURATION_LOST.to_owned()).into()),
            None => {}
        }
        let created = host.wait_for(NAME, Backoff::STORE, || checkpoints.config(self.shards)).await?;
        let watch = Watch::begin(self.tables, created, true, host).await?;
        // Every start writes, for the same reason.
        let counters = Counters::new(self.tables);
        if !host.wait_for("tables", Backoff::STORE, || counters.renew_reserved()).await? {
            tracing::error!(
                "the table like_counts was emptied: run `tally adopt tables`, nothing is called exact before"
            );
        }
        self.follow(created, watch, host)
    }

    /// For a process that only reads: waits until one that writes has created the deployment, and returns its number of
    /// shards.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn join(self, host: &Host) -> anyhow::Result<ShardCount> {
        self.check_tables(host).await?;
        let missing = || Fault::Transient("no consumer or change-streamer has created it yet".to_owned());
        let checkpoints = Checkpoints::new(self.tables);
        let stated = || async {
            // Asks for rows first: the configuration is created before the first row.
            let had_rows = dynamodb::held_items(self.tables).await?;
            match checkpoints.format().await? {
                Some(stated) => Ok(Ok(stated)),
                // Waiting would not help: no process creates a configuration over rows.
                None if had_rows => Ok(Err(Unfit(CONFIGURATION_LOST.to_owned()))),
                None => Err(missing()),
            }
        };
        host.wait_for(NAME, Backoff::STORE, stated).await??.known()?;
        let created = || async { checkpoints.deployed().await?.ok_or_else(missing) };
        let created = host.wait_for(NAME, Backoff::STORE, created).await?;
        let watch = Watch::begin(self.tables, created, false, host).await?;
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
        missing.await?.map_or(Ok(()), |missing| Err(missing.into()))
    }

    /// Checks `--shards`, spawns the watch and returns the number of shards. The watch stops the process once the
    /// deployment has a format that this build does not know, and makes it not ready while the tables are others.
    fn follow(self, created: ShardCount, watch: Watch, host: &Host) -> anyhow::Result<ShardCount> {
        let told = self.shards.unwrap_or(created);
        if told != created {
            return Err(Unfit(format!("--shards is {told}, but this deployment was created with {created}")).into());
        }
        host.spawn(Stage::Intake, "format", watch);
        Ok(created)
    }
}
