//! Measures how late the counts are, from outside: the time from Kafka's acknowledgement of an event until the API's
//! answer over HTTP includes it.
//!
//! Each partition has a post that only its probe speaks of. The probe says a like or an unlike of it, among all that
//! the load says in the same partition, and from the moment it is acknowledged asks the API, as any client does, until
//! the count has moved by it. So a span holds everything: the consumer's batch, the transaction, the stream, the
//! streamer's batch, the counter, the cache, the API's own memory, and the time between two questions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tally_core::event::Action;
use tally_service::{Stop, Stopped, Task};
use tokio::time::Instant;

use crate::client::Client;
use crate::control::Control;
use crate::load::Speaker;
use crate::staleness::Staleness;

/// The mean time between two samples of one probe.
const EVERY: Duration = Duration::from_secs(1);
/// Between two questions.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// When a sample is given up: it counts as this long.
const GIVE_UP: Duration = Duration::from_secs(120);

/// The user who probes.
const USER: u32 = 0;

/// The probe of one post.
pub(crate) struct Probe {
    pub(crate) speaker: Speaker,
    pub(crate) post: usize,
    pub(crate) api: SocketAddr,
    pub(crate) control: Control,
    pub(crate) staleness: Arc<Staleness>,
    /// After this it takes no more samples.
    pub(crate) until: Option<Instant>,
}

impl Probe {
    async fn sample(&self, client: &mut Client, stop: &Stop) -> Result<(), Stopped> {
        let Some(before) = self.likes(client, stop).await? else { return Ok(()) };
        let (action, after) = if self.speaker.ledger.likes(self.post, USER) {
            (Action::Unlike, before.saturating_sub(1))
        } else {
            (Action::Like, before + 1)
        };
        self.speaker.say(self.post, USER, action, stop).await?;
        let acknowledged = Instant::now();
        while acknowledged.elapsed() < GIVE_UP && self.likes(client, stop).await? != Some(after) {
            stop.unless_requested(tokio::time::sleep(ASK_EVERY)).await?;
        }
        self.staleness.measured(acknowledged.elapsed());
        Ok(())
    }

    /// What the API says; nothing while it does not answer.
    async fn likes(&self, client: &mut Client, stop: &Stop) -> Result<Option<u64>, Stopped> {
        let path = format!("/v1/posts/{}/likes", self.speaker.names.posts()[self.post]);
        let answer = stop.unless_requested(client.get(&path)).await?;
        Ok(answer.ok().and_then(|count| count["likes"].as_u64()))
    }
}

impl Task for Probe {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut client = Client::new(self.api);
        while self.until.is_none_or(|until| Instant::now() < until) {
            let pause = EVERY.mul_f64(0.5 + self.speaker.chance.fraction());
            stop.unless_requested(tokio::time::sleep(pause)).await?;
            stop.unless_requested(self.control.going()).await?;
            self.sample(&mut client, &stop).await?;
        }
        Ok(())
    }
}
