//! The attack `drift`: changes counts by hand under load, and lets the operators' command `tally recount` correct them.
//! After the correction no answer that is called exact may be as wrong as before, except for what an API has in memory
//! or has read from Redis before the fold has updated it. Probes measure how much later likes are counted during a
//! recount.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tally_adapters::dynamodb::inject_drift;
use tally_adapters::kafka;
use tally_core::ids::{CounterId, PostId};
use tally_service::{Stop, Switch};
use tally_testkit::{Process, until};
use tokio::time::{Instant, sleep};

use crate::attack::campaign::Extent;
use crate::attack::engines::Engines;
use crate::attack::fleet::Service;
use crate::attack::load::{self, send_all};
use crate::attack::stage::{SETTLES, Stage};
use crate::simulation::honest::{Count, Honesty};
use crate::simulation::{Draws, events};

/// How many counts are changed, and by how much: more than their rows change, and less than a recount refuses to correct.
const DRIFTED: u64 = 20;
const DRIFT: i64 = 50;

/// How long `tally recount` may take until every count is corrected.
const CORRECTED: Duration = Duration::from_secs(20);

/// The pause between two requests of a reader.
const QUESTIONS: Duration = Duration::from_millis(10);

/// The number of probes, each with its own post, and the limits of the pause between two samples in milliseconds.
const PROBES: u64 = 8;
const SHORTEST: u64 = 50;
const LONGEST: u64 = 250;

/// The pause between two polls of a count, and how long a like may take to be counted.
const LOOK: Duration = Duration::from_millis(5);
const COUNTED: Duration = Duration::from_secs(60);

/// How long staleness is measured before each recount.
const QUIET: Duration = Duration::from_secs(15);

/// What the staleness of a like is reported as, by when Kafka acknowledged the like.
const BEFORE: &str = "staleness before";
const DURING: &str = "staleness during a recount";

/// As what likes are sampled that are acknowledged now; `None` where they are not.
type Phase = Mutex<Option<&'static str>>;

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    ensure!(stage.engines.redis().is_some(), "redis-server is not installed: install it");
    let posts: Vec<CounterId> = stage.crowd.posts().map(CounterId::likes).take(usize::try_from(DRIFTED)?).collect();
    let (corrections, phase) = (Corrections::of(&stage.engines)?, Phase::default());
    let launcher = &stage.fleet.launcher;
    let forgetful = ["--local-ttl", "0s"];
    let uncached = Arc::new(launcher.without_redis().start(Service::Api, &forgetful)?);
    let cached = Arc::new(launcher.start(Service::Api, &forgetful)?);
    uncached.ready().await?;
    cached.ready().await?;
    let over = Switch::default();
    let apis = [("of the table", &uncached), ("of redis", &cached), ("of an api's memory", &stage.fleet.api())];
    let readers = apis.map(|(of, api)| Reader {
        of,
        stage,
        api: Arc::clone(api),
        posts: &posts,
        corrections: &corrections,
        strict: Honesty::of(vec![stage.engines.history.clone()], SETTLES, Duration::ZERO),
    });
    let rounds = async {
        let ended = rounds(stage, extent, &posts, &corrections, &phase).await;
        over.request();
        ended
    };
    let reads = readers.iter().map(|reader| reader.read(over.stop()));
    let probes = (0..PROBES).map(|nth| probe(stage, nth, &phase, over.stop()));
    tokio::try_join!(rounds, try_join_all(reads), try_join_all(probes))?;
    let [before, during] = [BEFORE, DURING].map(|from| stage.report.percentile(from, 99).as_secs_f64());
    stage.report.note(format!("p99 of staleness, change     {:>+5.0} ms", 1_000.0 * (during - before)));
    cached.stop().await?;
    uncached.stop().await?;
    for Reader { of, strict, .. } in &readers {
        let Count { answers, exact, .. } = strict.count();
        stage.report.note(format!("a reader {of:<18} {answers} answers, {exact} exact, no lie"));
    }
    Ok(())
}

async fn rounds(
    stage: &Stage,
    extent: Extent,
    posts: &[CounterId],
    corrections: &Corrections,
    phase: &Phase,
) -> anyhow::Result<()> {
    for _ in 0..extent.rounds {
        *phase.lock() = Some(BEFORE);
        sleep(QUIET).await;
        let began = drift(stage, posts, corrections).await?;
        *phase.lock() = Some(DURING);
        let corrected = async {
            let all_in = async || corrections.are_all_in();
            let slowest = until("every count to be corrected", 6 * CORRECTED, all_in).await?;
            *phase.lock() = None;
            anyhow::Ok(slowest)
        };
        let (took, slowest) = tokio::try_join!(recount(stage, posts, began), corrected)?;
        ensure!(slowest < CORRECTED, "a count was corrected after {slowest:?}");
        stage.report.recovered("corrected", slowest);
        stage.report.recovered("recount ended", took);
        stage.all_well()?;
    }
    stage.report.note(format!("posts with drift {:>17}, by {DRIFT} each", posts.len()));
    Ok(())
}

/// Changes the count of each of `posts` by hand, and returns the time of the last change.
async fn drift(stage: &Stage, posts: &[CounterId], corrections: &Corrections) -> anyhow::Result<Instant> {
    for id in posts {
        stage.honesty.injected(id, DRIFT);
        corrections.expect(id);
        // A post without likes does not have a counter yet.
        let tables = stage.engines.tables();
        // An edit whose answer is lost may have taken place, so it is not repeated.
        let begun = Instant::now();
        while !inject_drift(&tables.connection, &id.post, DRIFT).await? {
            ensure!(begun.elapsed() < COUNTED, "{id} has no counter to change by hand");
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(Instant::now())
}

/// Recounts `posts` as an operator does, and returns how long that took.
async fn recount(stage: &Stage, posts: &[CounterId], began: Instant) -> anyhow::Result<Duration> {
    let posts = posts.iter().map(|id| id.post.as_str());
    let words: Vec<&str> = ["recount"].into_iter().chain(posts).collect();
    stage.fleet.launcher.change(&words).await?;
    Ok(began.elapsed())
}

/// When each changed count was corrected, if it was. Clones share it.
#[derive(Clone, Debug, Default)]
struct Corrections(Arc<Mutex<BTreeMap<String, Option<Instant>>>>);

impl Corrections {
    /// Observes the table.
    fn of(engines: &Engines) -> anyhow::Result<Self> {
        let corrections = Self::default();
        let kept = corrections.clone();
        engines.emulator.watch("like_counts", move |changed| {
            let (Some(old), Some(new)) = (&changed.old, &changed.new) else { return };
            // A count that is not corrected yet is marked as doubtful.
            let is_corrected = new.whole("c") > old.whole("c") && new.get("doubt").is_none();
            if let Some(at) = new.text("post_id").filter(|_| is_corrected) {
                kept.0.lock().entry(at.to_owned()).and_modify(|at| *at = at.or(Some(Instant::now())));
            }
        })?;
        Ok(corrections)
    }

    /// A count is about to be changed by hand.
    fn expect(&self, id: &CounterId) {
        self.0.lock().insert(id.stored().into_owned(), None);
    }

    /// The time since when a count is correct; the inner `None` means that it was never changed. The outer `None` means that
    /// it is wrong.
    fn since(&self, id: &CounterId) -> Option<Option<Instant>> {
        match self.0.lock().get(&*id.stored()) {
            None => Some(None),
            Some(at) => at.map(Some),
        }
    }

    fn are_all_in(&self) -> bool {
        self.0.lock().values().all(Option::is_some)
    }
}

/// Requests the changed counts from an API, one after the other.
struct Reader<'a> {
    /// The source that the API reads from.
    of: &'static str,
    stage: &'a Stage,
    api: Arc<Process>,
    posts: &'a [CounterId],
    corrections: &'a Corrections,
    /// Judges answers without regard to the changes by hand.
    strict: Honesty,
}

impl Reader<'_> {
    async fn read(&self, over: Stop) -> anyhow::Result<()> {
        while !over.is_requested() {
            let id = &self.posts[self.stage.chance.place(self.posts.len())];
            self.ask(id).await?;
            sleep(QUESTIONS).await;
        }
        Ok(())
    }

    async fn ask(&self, id: &CounterId) -> anyhow::Result<()> {
        let address = self.api.public().context("the api has no public address yet")?;
        let (asked, since) = (Instant::now(), self.corrections.since(id));
        let Some(count) = load::likes(address, &id.post).await? else { return Ok(()) };
        // A count that is wrong, or has become wrong meanwhile, cannot be judged.
        let Some(since) = since.filter(|since| self.corrections.since(id) == Some(*since)) else { return Ok(()) };
        if let Some(lie) = self.strict.lie(&count) {
            let late = since.map(|since| asked.duration_since(since));
            bail!("asked {late:?} after the correction: {lie}");
        }
        Ok(())
    }
}

/// Likes its own post, one like after the other, and requests the count until it includes the like.
async fn probe(stage: &Stage, nth: u64, phase: &Phase, over: Stop) -> anyhow::Result<()> {
    let producer = kafka::Producer::new(&kafka::Settings::plaintext(&stage.engines.broker.to_string()))?;
    let post = PostId::new(&format!("probe-{nth}")).context("an id")?;
    let mut likes = 0_u32;
    while !over.is_requested() {
        let unsent = stage.ledger.lock().like(&post, &events::user(likes.into()));
        likes += 1;
        send_all(producer.clone(), stage.ledger.clone(), vec![unsent]).await?;
        let (said, sampled) = (Instant::now(), *phase.lock());
        let address = stage.fleet.api().public().context("the api has no public address yet")?;
        while load::likes(address, &post).await?.is_none_or(|count| count.value < likes.into()) {
            ensure!(said.elapsed() < COUNTED, "like {likes} of {post} is not counted");
            sleep(LOOK).await;
        }
        if let Some(sampled) = sampled {
            stage.report.recovered(sampled, said.elapsed());
        }
        sleep(stage.chance.millis(SHORTEST, LONGEST)).await;
    }
    Ok(())
}
