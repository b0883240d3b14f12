//! The load on the pipeline during an attack: one producer sends events to Kafka, and readers ask the API for counts
//! and check each answer.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use tally_adapters::kafka;
use tally_core::ids::PostId;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, Producer as _};
use tally_core::time::UnixMillis;
use tally_service::{Chance, Stop};
use tally_testkit::http;
use tally_testkit::http::Answer;
use tokio::time::sleep;

use crate::attack::engines::Engines;
use crate::attack::fleet::Fleet;
use crate::attack::ledger::{Ledger, Unsent, behind};
use crate::simulation::Draws;
use crate::simulation::events::{Crowd, TOPIC};
use crate::simulation::honest::{Answer as Count, Honesty};

/// The period of the producer.
const PERIOD: Duration = Duration::from_millis(100);

/// Periods per second.
const PERIODS: u64 = 10;

/// How long a request may wait for its answer: no process is stopped for longer.
const STANDSTILL: Duration = Duration::from_secs(60);

/// The maximum number of unfinished events. The in-process cluster keeps 5 MiB per partition and silently drops older records;
/// this many events of one post are less than that.
const ROOM: u64 = 20_000;

/// The ledger, shared by the producer and the judgement.
pub(crate) type Shared = Arc<Mutex<Ledger>>;

/// Produces this many events per second until it is stopped, directly to the broker.
pub(crate) async fn produce(engines: Arc<Engines>, ledger: Shared, rate: u64, stop: Stop) -> anyhow::Result<()> {
    let producer = kafka::Producer::new(&kafka::Settings::plaintext(&engines.broker.to_string()))?;
    while !stop.is_requested() {
        let ends = ledger.lock().ends.clone();
        if behind(&ends, &engines.finished().await) < ROOM {
            let mut events: Vec<_> = {
                let mut ledger = ledger.lock();
                (0..rate.div_ceil(PERIODS)).map(|_| ledger.next_event()).collect()
            };
            // An event without an acknowledgement may be in the log nevertheless. All events are sent again in order, so that
            // the last one stays the last. Amounts are not sent again, since they would count twice.
            while let Err(fault) = send_all(producer.clone(), ledger.clone(), events.clone()).await {
                ensure!(fault.is_retryable(), "cannot produce events: {fault}");
                events.retain(Unsent::may_be_repeated);
            }
        }
        sleep(PERIOD).await;
    }
    Ok(())
}

/// Produces events in order, and waits until each is acknowledged or given up.
pub(crate) async fn send_all(producer: kafka::Producer, ledger: Shared, events: Vec<Unsent>) -> Outcome<()> {
    let sent = stream::iter(events).map(move |unsent| {
        let producer = producer.clone();
        async move {
            let (key, value) = (unsent.key.as_deref(), Some(&unsent.value[..]));
            let sent = producer.send(Outgoing { topic: TOPIC, partition: None, key, value, headers: &[] }).await;
            (unsent, sent)
        }
    });
    let mut sent = sent.buffered(500);
    let mut outcome = Ok(());
    while let Some((unsent, sent)) = sent.next().await {
        match sent {
            Ok(written) => ledger.lock().written(&unsent, written.partition, written.offset.0),
            Err(fault) => {
                ledger.lock().unacknowledged(&unsent);
                outcome = Err(fault);
            }
        }
    }
    outcome
}

/// The pause between two requests of one reader.
const QUESTIONS: Duration = Duration::from_millis(50);

/// What the parts of an answer are held to: the rows of each Region, by its name. Empty where there is one Region.
pub(crate) type Parts = BTreeMap<&'static str, Honesty>;

/// A count, and what each Region adds to it.
#[derive(Deserialize)]
pub(crate) struct Counted {
    #[serde(flatten)]
    sum: Count,
    #[serde(default)]
    pub(crate) regions: Vec<Part>,
}

#[derive(Deserialize)]
pub(crate) struct Part {
    region: String,
    count: i64,
    exact: bool,
    as_of: u64,
}

impl Counted {
    fn of(answer: &Answer) -> anyhow::Result<Self> {
        serde_json::from_str(&answer.body).with_context(|| format!("the answer is not a count: {answer:?}"))
    }

    /// The answer about the likes of a post, with the parts of all Regions, if there is one.
    pub(crate) async fn ask(address: SocketAddr, post: &PostId) -> Option<Self> {
        Self::of(&http::get(address, &format!("/v1/posts/{post}/{BY_REGION}")).await?).ok()
    }

    /// Whether it has everything from before this time, and says so.
    pub(crate) fn is_exact(&self, since: UnixMillis) -> bool {
        self.sum.exact && UnixMillis(self.sum.as_of) >= since
    }

    /// Judges the sum and each part. Wrong answers are counted, since their number says more than the first one.
    fn judge(self, honesty: &Honesty, parts: &Parts) -> anyhow::Result<()> {
        let Self { sum, regions } = self;
        let _ = honesty.lie(&sum);
        for Part { region, count, exact, as_of } in regions {
            let part = parts.get(&*region).with_context(|| format!("an answer names the Region {region}"))?;
            let _ = part.lie(&Count { value: count, exact, as_of, ..sum.clone() });
        }
        Ok(())
    }
}

/// The answer about the likes of a post. A busy API claims nothing.
pub(crate) async fn likes(address: SocketAddr, post: &PostId) -> anyhow::Result<Option<Count>> {
    let answer = http::get(address, &format!("/v1/posts/{post}/likes")).await;
    let answer = answer.filter(|answer| answer.status == 200);
    answer.map(|answer| Ok(Counted::of(&answer)?.sum)).transpose()
}

/// The route of an answer with the parts of all Regions.
const BY_REGION: &str = "counters/likes?detail=regions";

/// Requests the likes of one post after another, and sometimes all counters of a post, until it is stopped. Each answer is
/// judged.
pub(crate) async fn read(
    (fleet, answers): (Arc<Fleet>, Arc<Answers>),
    honesty: Honesty,
    parts: Parts,
    chance: Chance,
    crowd: Crowd,
    stop: Stop,
) -> anyhow::Result<()> {
    let posts: Vec<PostId> = crowd.posts().collect();
    while !stop.is_requested() {
        // A process that is still starting has no address yet.
        if let Some(address) = fleet.api().public() {
            // A stopped process answers when it continues.
            let of_likes = chance.happens(75);
            let by_region = !parts.is_empty() && chance.happens(50);
            let route = match of_likes {
                true if by_region => BY_REGION,
                true => "likes",
                false => "counters",
            };
            let path = format!("/v1/posts/{}/{route}", posts[chance.place(posts.len())]);
            let asked = http::get_within(address, &path, STANDSTILL);
            // A reader that is stopped does not wait for a stopped process.
            let Ok(answer) = stop.unless_requested(asked).await else { return Ok(()) };
            if let Some(answer) = answer.as_ref().filter(|answer| answer.status == 200 && of_likes) {
                let counted = Counted::of(answer)?;
                ensure!(!by_region || counted.regions.len() == parts.len(), "not every Region is named: {answer:?}");
                counted.judge(&honesty, &parts)?;
            }
            answers.hear(answer);
        }
        sleep(QUESTIONS).await;
    }
    Ok(())
}

/// The answers by status, and the first one that no client may ever get.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Received>);

#[derive(Clone, Debug, Default)]
struct Received {
    by_status: BTreeMap<u16, u64>,
    none: u64,
    busy: Option<Answer>,
    wrong: Option<Answer>,
}

impl Answers {
    /// Records an answer; `None` means that there was none.
    pub(crate) fn hear(&self, answer: Option<Answer>) {
        let mut received = self.0.lock();
        let Some(answer) = answer else {
            received.none += 1;
            return;
        };
        *received.by_status.entry(answer.status).or_default() += 1;
        match answer.status {
            200 => {}
            503 => received.busy = Some(answer),
            _ => received.wrong = received.wrong.take().or(Some(answer)),
        }
    }

    /// The number of answers with status 503, and the last of them.
    pub(crate) fn busy(&self) -> (u64, Option<Answer>) {
        let received = self.0.lock();
        (received.by_status.get(&503).copied().unwrap_or(0), received.busy.clone())
    }

    /// The API may answer a request for a post only with counts or 503.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        let received = self.0.lock();
        ensure!(received.wrong.is_none(), "the api answered {:?}", received.wrong);
        ensure!(received.by_status.contains_key(&200), "the api never gave a count: {:?}", received.by_status);
        Ok(())
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let received = self.0.lock();
        received.by_status.iter().try_for_each(|(status, count)| write!(f, "{status}: {count}, "))?;
        write!(f, "no connection or no answer: {}", received.none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_api_is_accepted_and_any_other_failure_is_not() {
        let hears = |statuses: &[u16]| {
            let answers = Answers::default();
            let answer = |status| Answer { status, head: String::new(), body: String::new() };
            statuses.iter().for_each(|status| answers.hear(Some(answer(*status))));
            answers.judge().is_ok()
        };
        assert!(hears(&[503, 200]) && !hears(&[503]) && !hears(&[200, 500]));
    }
}
