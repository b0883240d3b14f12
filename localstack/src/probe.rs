//! Measures how late the counts are, from outside: the time from Kafka's acknowledgement of an event until the API's
//! answer over HTTP includes it.
//!
//! Each partition has a post that only its probe likes. The probe writes a like or an unlike of it among the load's
//! events, and from the moment Kafka acknowledges it asks the API, as any client does, until the count has moved by it.
//! So the time measured holds everything: the consumer's batch, the transaction, the stream, the streamer's batch, the
//! counter, the cache, the API's own memory, and the time between two requests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use serde_json::Value;
use tally_core::definitions::Direction;
use tally_service::{Stop, Stopped, Task};
use tokio::time::{Instant, timeout};

use crate::counters::Counted;
use crate::ledger::{Deed, Event};
use crate::load::Writer;
use crate::names::Member;
use crate::page::Staleness as Shown;

const PATIENCE: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 16 << 20;

/// Asks one listener; its connections stay open between requests.
pub(crate) struct Client {
    address: SocketAddr,
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { address, http: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector) }
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(http::Request::get(self.url(path)), path, Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = http::Request::post(self.url(path)).header(http::header::CONTENT_TYPE, "application/json");
        self.ask(request, path, body.to_string().into()).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn ask(&self, request: http::request::Builder, path: &str, body: Bytes) -> anyhow::Result<Value> {
        let request = request.body(Full::new(body)).context("not a request")?;
        let exchange = async {
            let (head, body) = self.http.request(request).await?.into_parts();
            let body = Limited::new(body, MOST_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((head.status, body.to_bytes()))
        };
        let answered = timeout(PATIENCE, exchange).await.context("no answer in time").flatten();
        let (status, body) = answered.with_context(|| format!("cannot ask {} for {path}", self.address))?;
        ensure!(status.is_success(), "{path} answered {status}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).with_context(|| format!("{path} answered no JSON"))
    }
}

/// What counts as now.
const RECENT: Duration = Duration::from_secs(10);
/// The longest span that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(600);

/// Spans from an event's acknowledgement by Kafka until the API's count included it.
#[derive(Debug)]
pub(crate) struct Staleness(Mutex<Spans>);

#[derive(Debug)]
struct Spans {
    /// In microseconds.
    all: Histogram<u64>,
    recent: VecDeque<(Instant, Duration)>,
}

impl Default for Staleness {
    fn default() -> Self {
        let all = Histogram::new_with_bounds(1, micros(LONGEST), 3).expect("the bounds and the precision are in order");
        Self(Mutex::new(Spans { all, recent: VecDeque::new() }))
    }
}

impl Staleness {
    pub(crate) fn measured(&self, span: Duration) {
        let mut spans = self.0.lock();
        spans.all.saturating_record(micros(span));
        spans.recent.push_back((Instant::now(), span));
        spans.forget();
    }

    /// Median and 99th percentile over the last seconds.
    pub(crate) fn recent(&self) -> Option<Shown> {
        let mut spans = self.0.lock();
        spans.forget();
        let mut sorted: Vec<Duration> = spans.recent.iter().map(|(_, span)| *span).collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let at = |hundredths: usize| sorted[(last * hundredths).div_ceil(100)].as_secs_f64() * 1000.0;
        Some(Shown { p50_ms: at(50), p99_ms: at(99) })
    }

    /// Median and 99th percentile over everything, and of how many.
    pub(crate) fn overall(&self) -> (Option<Shown>, u64) {
        let spans = self.0.lock();
        let count = spans.all.len();
        #[expect(clippy::cast_precision_loss, reason = "ten minutes have far fewer than 2^52 microseconds")]
        let at = |quantile| spans.all.value_at_quantile(quantile) as f64 / 1000.0;
        ((count > 0).then(|| Shown { p50_ms: at(0.5), p99_ms: at(0.99) }), count)
    }
}

impl Spans {
    fn forget(&mut self) {
        while self.recent.pop_front_if(|(at, _)| at.elapsed() > RECENT).is_some() {}
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The mean time between two samples of one probe.
const EVERY: Duration = Duration::from_secs(1);
/// Between two requests.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// When a sample is given up: it counts as this long.
const GIVE_UP: Duration = Duration::from_secs(120);

/// The user whose likes the probes write.
const USER: Member = Member::User(0);

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
        let likes = self.writer.local.ledger.members(Counted::Likes, self.post);
        let (direction, after) = if likes.contains_key(&USER) {
            (Direction::Remove, before.saturating_sub(1))
        } else {
            (Direction::Add, before + 1)
        };
        let deed = Deed::Member { member: USER, direction };
        let event = Event { counted: Counted::Likes, subject: self.post, region: 0, deed };
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
        let path = format!("/v1/posts/{}/likes", self.writer.local.ledger.names.posts[self.post]);
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
            stop.unless_requested(local.going()).await?;
            self.sample(&client, &stop).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn recent_spans_are_forgotten_and_all_of_them_are_kept() {
        let staleness = Staleness::default();
        assert_eq!(staleness.recent().map(|shown| shown.p50_ms), None);
        for ms in 1..=100 {
            staleness.measured(Duration::from_millis(ms));
        }
        let shown = staleness.recent().unwrap();
        assert!((50.0..=51.0).contains(&shown.p50_ms) && (99.0..=100.0).contains(&shown.p99_ms), "{shown:?}");
        tokio::time::advance(RECENT * 2).await;
        assert!(staleness.recent().is_none());
        let (overall, count) = staleness.overall();
        assert_eq!((overall.map(|shown| shown.p99_ms.round()), count), (Some(99.0), 100));
    }
}
