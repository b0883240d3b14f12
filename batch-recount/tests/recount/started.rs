//! Starts recounts by their command lines inside a test, over the emulated tables and the log of `world.rs`, waits for
//! how they end, reads their records and queue, and makes counts wrong on purpose.

use std::time::Duration;

use tally_batch_recount::{App, Args, Rules};
use tally_core::audit::RunRecord;
use tally_core::ids::RowKey;
use tally_service::{Arguments as _, Exit, Host, How, Running};
use tokio::time::Instant;

use crate::world::{World, rules, shards};

/// Returns the exit code of a recount that ends by itself.
pub(crate) async fn ended(running: Running) -> Exit {
    let end = running.ended().await;
    let How::Finished(exit) = end.how else { panic!("{end}") };
    exit
}

impl World {
    /// Returns the app of a command line; `adjust` changes its rules.
    pub(crate) fn app(&self, line: &[&str], adjust: impl FnOnce(&mut Rules)) -> App {
        let args = Args::checked(&[&["--brokers", "b:1"], line].concat()).unwrap();
        let Rules { dry_run, force, .. } = args.rules;
        let mut rules = Rules { dry_run, force, ..rules() };
        adjust(&mut rules);
        App::with_ports(Some(shards()), args.scope(), rules, self.ports())
    }

    /// Returns the host of a process with this name, by the clock of the store.
    pub(crate) fn host(&self, name: &str) -> Host {
        Host::new(name).with_clock(self.clock).with_chance(self.chance())
    }

    /// Starts a recount by its command line; `adjust` changes its rules.
    pub(crate) fn launch_with(&self, line: &[&str], adjust: impl FnOnce(&mut Rules)) -> Running {
        Running::start(self.app(line, adjust), self.host("recount"))
    }

    pub(crate) fn launch(&self, line: &[&str]) -> Running {
        self.launch_with(line, |_| {})
    }

    /// Runs a recount from its command line to its exit code, while relay and folds go on.
    pub(crate) async fn run(&self, line: &[&str]) -> Exit {
        self.beside(ended(self.launch(line))).await
    }

    /// Returns the latest run.
    pub(crate) async fn latest(&self) -> RunRecord {
        self.ports().recounts.runs(1).await.unwrap().remove(0)
    }

    /// Returns the row keys that are queued.
    pub(crate) async fn queued(&self) -> Vec<RowKey> {
        let page = self.ports().recounts.queued(None).await.unwrap();
        page.items.into_iter().map(|queued| queued.key).collect()
    }

    /// Waits until `holds`, while relay and folds go on.
    pub(crate) async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(3600);
        self.beside(async {
            while !holds().await {
                assert!(Instant::now() < deadline, "never: {what}");
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        })
        .await;
    }

    /// Makes the count of a row key wrong by so much, and the total with it.
    pub(crate) async fn drift(&self, key: &RowKey, by: i64) {
        let counter = self.counter(&key.counter).await.unwrap();
        self.edit(&key.counter, &format!("s{}", key.shard), Some(counter.part(key.shard) + by)).await;
        self.edit(&key.counter, "likes", Some(counter.likes + by)).await;
    }
}
