//! A stack that is made up: it shows a fixed snapshot and writes down what it was asked to do.

use anyhow::{Context, bail};
use parking_lot::Mutex;
use tally_localstack::page::{Command, Endpoints, Load, Refusal, ShardState, Snapshot, Stack, StreamShard};

/// A post's id that would be trouble in HTML, in a path, or in a header.
pub(crate) const HOSTILE: &str = "</script><script>alert('1')</script>\"#%2f\u{1f980}";

#[derive(Default)]
pub(crate) struct Double {
    asked: Mutex<Vec<Command>>,
}

impl Double {
    /// What was asked of it so far.
    pub(crate) fn asked(&self) -> Vec<Command> {
        self.asked.lock().clone()
    }
}

#[async_trait::async_trait]
impl Stack for Double {
    fn snapshot(&self) -> Snapshot {
        let endpoints = Endpoints {
            kafka: "127.0.0.1:9092".to_owned(),
            dynamodb: "http://127.0.0.1:8000".to_owned(),
            api: "http://127.0.0.1:8080".to_owned(),
        };
        let shard =
            StreamShard { id: "shard-1".to_owned(), parent: None, state: ShardState::Closing, lag_ms: Some(12) };
        Snapshot {
            at: 1_700_000_000_000,
            since: 1_600_000_000_000,
            endpoints,
            load: Load { running: true, rate: 500, events_per_second: 499.5, events: 12_345, limit: None },
            rows: 678,
            shards: vec![shard],
            posts: vec![HOSTILE.to_owned()],
            ..Snapshot::default()
        }
    }

    async fn act(&self, command: Command) -> anyhow::Result<String> {
        self.asked.lock().push(command.clone());
        match command {
            Command::StopCache => Err(Refusal("the cache is stopped already".to_owned()).into()),
            Command::Recount => Err(anyhow::anyhow!("the table is away")).context("the recount failed"),
            Command::Kill { part } if part == "kafka" => bail!("no such part: kafka"),
            command => Ok(format!("did {command:?}")),
        }
    }
}
