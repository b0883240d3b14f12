//! Puts the recount together: opens the tables and the log, and starts the job that recounts once or watches.

use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use tally_adapters::{Deployment, dynamodb};
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_service::metrics::Catalogue;
use tally_service::{Host, Invalid, Listen, Program};

use crate::args::{Args, Config, Scope};
use crate::metrics;
use crate::ports::{LogPorts, Ports};
use crate::routes::{Desk, routes};
use crate::run::recount;
use crate::settle::{Recount, Rules};
use crate::watch::watch;

/// A recount, and the ports that it works on.
pub struct App {
    shards: Option<ShardCount>,
    scope: Scope,
    rules: Rules,
    ports: Ports,
}

impl App {
    /// Takes any ports, in a deployment that is to have so many `shards`.
    pub fn with_ports(shards: Option<ShardCount>, scope: Scope, rules: Rules, ports: Ports) -> Self {
        Self { shards, scope, rules, ports }
    }
}

impl tally_service::App for App {
    fn routes(&self, host: &Host) -> Router {
        let Ports { recounts, deployment, .. } = &self.ports;
        routes(Desk { recounts: recounts.clone(), deployment: deployment.clone(), clock: host.clock() })
    }

    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { shards, scope, rules, ports } = self;
        // A recount creates nothing: the processes that write rows create the deployment.
        let shards = Deployment { tables: &ports.tables, shards }.join(&host).await?;
        host.wait_for("changes", Backoff::STORE, || ports.changes.begun()).await?;
        let (by, watching) = ((host.patience(), host.chance().clone()), host.clone());
        host.job("recount", move |stop| {
            async move {
                let of = Recount::new(ports, shards, rules, by, stop).await?;
                match scope {
                    Scope::Watch => watch(&of, &watching).await,
                    scope => Ok(recount(&of, &scope, true).await?.0),
                }
            }
            .boxed()
        });
        Ok(())
    }
}

impl Program for App {
    type Args = Args;
    type Config = Config;
    const METRICS: &'static [Catalogue] = &[metrics::CATALOGUE];

    async fn build(config: Config) -> anyhow::Result<Self> {
        let tables = dynamodb::Connection::open(&config.store).await;
        let log = LogPorts::open(&config.kafka, &config.topic)?;
        Ok(Self::with_ports(config.shards, config.scope, config.rules, Ports::over(&tables, log)))
    }

    fn environment(_: &Args) -> Invalid {
        dynamodb::environment()
    }

    /// A process that watches is a service, and waits for as long as it takes.
    fn patience(args: &Args) -> Option<Duration> {
        (!args.watch).then_some(args.patience)
    }

    /// Only a process that stays has something to show.
    fn admin_listen(args: &Args) -> Listen {
        if args.watch { args.common.admin_listen } else { Listen::Off }
    }
}
