//! What a process does before its own work: it waits for the tables, checks them, and learns how many shards each post has in
//! this deployment.

use anyhow::ensure;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_core::ports::DeploymentConfig;
use tally_service::{Host, Invalid};

use crate::dynamodb::{self, Connection, Missing};

/// The deployment that a process is part of.
#[derive(Clone, Copy)]
pub struct Deployment<'a> {
    /// The tables to check; `None` where the ports are not over tables.
    pub tables: Option<&'a Connection>,
    pub checkpoints: &'a dyn DeploymentConfig,
    /// What `--shards` says; it has to be what the deployment was created with.
    pub shards: Option<ShardCount>,
}

impl Deployment<'_> {
    /// For a process that writes rows or counts: it creates the deployment if it is new. Safe to repeat: the
    /// configuration is put only where there is none.
    ///
    /// # Errors
    /// Tables of another shape, another number of shards, a fault that waiting does not mend, or a stop.
    pub async fn create(self, host: &Host) -> anyhow::Result<ShardCount> {
        self.check_tables(host).await?;
        let created = || self.checkpoints.config(self.shards);
        self.agree(host.wait_for("deployment", Backoff::STORE, created).await?)
    }

    /// For a process that only reads: it waits until one that writes has created the deployment.
    ///
    /// # Errors
    /// The same.
    pub async fn join(self, host: &Host) -> anyhow::Result<ShardCount> {
        self.check_tables(host).await?;
        let created = || async {
            let missing = || Fault::Transient("no consumer or change-streamer has created it yet".to_owned());
            self.checkpoints.deployed().await?.ok_or_else(missing)
        };
        self.agree(host.wait_for("deployment", Backoff::STORE, created).await?)
    }

    async fn check_tables(self, host: &Host) -> anyhow::Result<()> {
        let Some(connection) = self.tables else { return Ok(()) };
        let missing = host.wait_for("tables", Backoff::STORE, || async {
            let missing = connection.missing().await?;
            if missing.is_none() {
                dynamodb::check_tables(connection).await?;
            }
            Ok(missing)
        });
        let Some(Missing { variable, problem }) = missing.await? else { return Ok(()) };
        let mut invalid = Invalid::none();
        invalid.add_variable(variable, problem);
        Err(invalid.into())
    }

    fn agree(self, created: ShardCount) -> anyhow::Result<ShardCount> {
        let told = self.shards.unwrap_or(created);
        ensure!(told == created, "--shards is {told}, but this deployment was created with {created}");
        Ok(created)
    }
}

#[cfg(test)]
#[cfg(feature = "testkit")]
mod tests {
    use tally_core::time::UnixMillis;
    use tally_service::Clock;

    use super::*;
    use crate::memory::Memory;

    fn shards(count: u64) -> Option<ShardCount> {
        Some(ShardCount::new(count).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_for_a_writer_and_both_refuse_another_number_of_shards() {
        let memory = Memory::new(UnixMillis(0), 1);
        let checkpoints = memory.checkpoints();
        let host = Host::new("test").with_clock(Clock::starting_at(UnixMillis(0)));
        let of = |shards| Deployment { tables: None, checkpoints: &checkpoints, shards };
        let (read, created) = tokio::join!(of(None).join(&host), async {
            host.clock().sleep(std::time::Duration::from_secs(60)).await;
            of(shards(8)).create(&host).await
        });
        assert_eq!((read.unwrap(), created.unwrap()), (shards(8).unwrap(), shards(8).unwrap()));
        for refused in [of(shards(16)).create(&host).await, of(shards(16)).join(&host).await] {
            let message = refused.unwrap_err().to_string();
            assert_eq!(message, "--shards is 16, but this deployment was created with 8");
        }
    }
}
