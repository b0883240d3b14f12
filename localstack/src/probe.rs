//! Measures how late the counts are, from outside: the time from Kafka's acknowledgement of an event until the API's
//! answer over HTTP includes it.
//!
//! Each partition has a post that only its probe likes. The probe writes a like or an unlike of it among the load's
//! events, and from the moment Kafka acknowledges it asks the API, as any client does, until the count has moved by it.
//! So the time measured holds everything: the consumer's batch, the transaction, the stream, the streamer's batch, the
//! counter, the cache, the API's own memory, and the time between two requests.

use std::time::Duration;

use tally_core::definitions::Direction;
use tally_service::{Stop, Stopped, Task};
use tokio::time::Instant;

use crate::client::Client;
use crate::ledger::{Deed, Event};
use crate::load::Writer;

/// The mean time between two samples of one probe.
const EVERY: Duration = Duration::from_secs(1);
/// Between two requests.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// When a sample is given up: it counts as this long.
const GIVE_UP: Duration = Duration::from_secs(120);

/// The user whose likes the probes write.
const USER: u32 = 0;

/// The probe of one post.
pub(crate) struct Probe {
    pub(crate) writer: Writer,
    pub(crate) post: usize,
    /// After this it takes no more samples.
    pub(crate) until: Option<Instant>,
}

impl Probe {
    async fn sample(&self, client: &Client, stop: &Stop) -> Result<(), Stopped> {
        let Some(before) = self.likes(client, stop).await? else { return Ok(()) };
        let (direction, after) = if self.writer.local.ledger.likes().has(self.post, USER) {
            (Direction::Remove, before.saturating_sub(1))
        } else {
            (Direction::Add, before + 1)
        };
        let event = Event { subject: self.post, region: 0, deed: Deed::Like { user: USER, direction } };
        self.writer.write(event, stop).await?;
        let acknowledged = Instant::now();
        while acknowledged.elapsed() < GIVE_UP && self.likes(client, stop).await? != Some(after) {
            stop.unless_requested(tokio::time::sleep(ASK_EVERY)).await?;
        }
        self.writer.local.staleness.measured(acknowledged.elapsed());
        Ok(())
    }

    /// The count that the API answers; `None` while it does not answer.
    async fn likes(&self, client: &Client, stop: &Stop) -> Result<Option<u64>, Stopped> {
        let path = format!("/v1/posts/{}/likes", self.writer.local.ledger.names().posts()[self.post]);
        let answer = stop.unless_requested(client.get(&path)).await?;
        Ok(answer.ok().and_then(|count| count["likes"].as_u64()))
    }
}

impl Task for Probe {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let Writer { local, chance, .. } = &self.writer;
        let client = Client::new(local.api);
        while self.until.is_none_or(|until| Instant::now() < until) {
            let pause = EVERY.mul_f64(0.5 + chance.fraction());
            stop.unless_requested(tokio::time::sleep(pause)).await?;
            stop.unless_requested(local.control.going()).await?;
            self.sample(&client, &stop).await?;
        }
        Ok(())
    }
}
