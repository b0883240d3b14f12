//! Writes records by transactions: readers see all records of one or none, also where a process was killed within it.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use rdkafka::error::KafkaResult;
use rdkafka::producer::{FutureProducer, Producer as _};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{self, Outgoing};

use super::args::Settings;
use super::context::Context;
use super::fault::fault_of;
use super::message::blocking;
use super::producer::{PROMPT, config, to_send};

/// How long a transaction may take. Where a killed process has left one open, readers of its partitions see nothing
/// behind it until the broker ends it after this time, or the next process takes the name over.
const WITHIN: Duration = Duration::from_secs(10);

/// How long a call to the coordinator may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Writes under one `transactional.id`.
pub struct Transactions {
    settings: Settings,
    id: String,
    /// The client that has taken the name over; `None` before that, and after a fault.
    client: Mutex<Option<FutureProducer<Context>>>,
}

impl Transactions {
    /// Transactions under the name `id`. Nothing is connected yet.
    pub fn new(settings: &Settings, id: &str) -> Self {
        Self { settings: settings.clone(), id: id.to_owned(), client: Mutex::new(None) }
    }

    fn fault(&self, error: &rdkafka::error::KafkaError) -> Fault {
        fault_of(&format!("writing as `{}`", self.id), error)
    }

    /// Runs a call that blocks, and returns the client.
    async fn call(
        &self,
        client: FutureProducer<Context>,
        call: impl FnOnce(&FutureProducer<Context>) -> KafkaResult<()> + Send + 'static,
    ) -> Outcome<FutureProducer<Context>> {
        let doing = format!("writing as `{}`", self.id);
        blocking(move || call(&client).map(|()| client).map_err(|error| fault_of(&doing, &error))).await
    }
}

#[async_trait]
impl log::Transactions for Transactions {
    async fn take_over(&self) -> Outcome<()> {
        let mut config = config(&self.settings, PROMPT);
        let within = WITHIN.as_millis().to_string();
        config.set("transactional.id", &self.id);
        config.set("transaction.timeout.ms", &within).set("delivery.timeout.ms", &within);
        let client = config.create_with_context(Context::new(&self.settings)).map_err(|error| self.fault(&error))?;
        let client = self.call(client, |client| client.init_transactions(TIMEOUT)).await?;
        *self.client.lock() = Some(client);
        Ok(())
    }

    async fn write(&self, records: &[Outgoing<'_>]) -> Outcome<()> {
        let client = self.client.lock().take();
        let client = client.ok_or_else(|| Fault::Fatal(format!("`{}` is not taken over", self.id)))?;
        client.begin_transaction().map_err(|error| self.fault(&error))?;
        let send = async |record: &Outgoing<'_>| {
            let sent = client.send(to_send(*record)?, WITHIN).await;
            sent.map(|_| ()).map_err(|(error, _)| fault_of(&format!("writing to `{}`", record.topic), &error))
        };
        if let Err(fault) = try_join_all(records.iter().map(send)).await {
            // Otherwise readers wait until the broker ends it.
            if let Err(error) = self.call(client, |client| client.abort_transaction(TIMEOUT)).await {
                tracing::warn!(%error, "cannot end a transaction");
            }
            return Err(fault);
        }
        let client = self.call(client, |client| client.commit_transaction(TIMEOUT)).await?;
        *self.client.lock() = Some(client);
        Ok(())
    }
}
