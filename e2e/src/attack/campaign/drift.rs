//! Counts are changed by hand under load, and `tally recount` corrects them. From the correction on no answer may say exactly
//! what was there before it, but for what an API has in its memory, and what it has read of Redis while the fold tells Redis.
//! Probes show how much older counts are while a recount works.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use serde_json::json;
use tally_adapters::kafka;
use tally_core::ids::{CounterId, PostId};
use tally_service::{Stop, Switch};
use tally_testkit::{Process, until};
use tokio::time::{Instant, sleep};

use crate::attack::campaign::{Deeds, Extent};
use crate::attack::engines::Engines;
use crate::attack::fleet::Service;
use crate::attack::load::utter;
use crate::attack::stage::{Recoveries, SETTLES, Stage};
use crate::simulation::honest::Honesty;
use crate::simulation::{Draws, events};
use crate::undisturbed;

/// Posts whose counts are changed, and by how much: more than their rows change by, and less than a recount withholds.
const DRIFTED: u64 = 20;
const DRIFT: i64 = 50;

/// How long it may take from the start of `tally recount` until every count is corrected.
const CORRECTED: Duration = Duration::from_secs(20);

/// Between two questions of a reader.
const QUESTIONS: Duration = Duration::from_millis(10);

/// Probes, each of a post of its own, and how long pauses between two samples are at least and at most.
const PROBES: u64 = 8;
const SHORTEST: u64 = 50;
const LONGEST: u64 = 250;

/// Between two looks whether the count has moved, and how long that may take.
const LOOK: Duration = Duration::from_millis(5);
const COUNTED: Duration = Duration::from_secs(60);

/// For how long ages are taken before each recount.
const BEFORE: Duration = Duration::from_secs(15);

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    ensure!(stage.engines.redis().is_some(), "there is no redis-server here: install one");
    let posts: Vec<CounterId> = stage.crowd.all_counters().take(usize::try_from(DRIFTED)?).collect();
    let (corrections, ages) = (Corrections::of(&stage.engines)?, Ages::default());
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
        strict: Honesty::of(stage.engines.history.clone(), SETTLES, Duration::ZERO),
    });
    let rounds = async {
        let deeds = rounds(stage, extent, &posts, &corrections, &ages).await;
        over.request();
        deeds
    };
    let probes = (0..PROBES).map(|nth| probe(stage, nth, &ages, over.stop()));
    let reads = readers.iter().map(|reader| reader.read(over.stop()));
    let (mut deeds, ..) = tokio::try_join!(rounds, try_join_all(reads), try_join_all(probes))?;
    cached.stop().await?;
    uncached.stop().await?;
    deeds.notes.extend(readers.iter().map(Reader::told));
    Ok(deeds)
}

async fn rounds(
    stage: &Stage,
    extent: Extent,
    posts: &[CounterId],
    corrections: &Corrections,
    ages: &Ages,
) -> anyhow::Result<Deeds> {
    let (mut deeds, mut before, mut meanwhile) = (Deeds::default(), Recoveries::default(), Recoveries::default());
    for _ in 0..extent.rounds {
        let quiet = Instant::now();
        sleep(BEFORE).await;
        let began = drift(stage, posts, corrections).await?;
        before.merge(ages.between(quiet, began));
        let corrected = async {
            until("every count to be corrected", 6 * CORRECTED, async || corrections.are_all_in()).await?;
            anyhow::Ok(Instant::now())
        };
        let (took, ended) = tokio::try_join!(recount(stage, posts, began), corrected)?;
        let slowest = corrections.slowest(began);
        ensure!(slowest < CORRECTED, "a count was corrected after {slowest:?}");
        deeds.recovered("corrected", slowest);
        deeds.recovered("recount ended", took);
        meanwhile.merge(ages.between(began, ended));
        stage.all_well()?;
    }
    let more = meanwhile.percentile(99).as_secs_f64() - before.percentile(99).as_secs_f64();
    deeds.notes.push(format!("posts with drift {:>17}, by {DRIFT} each", posts.len()));
    deeds.notes.push(format!("p99 of staleness by a recount {:>+5.0} ms", 1_000.0 * more));
    deeds.all("staleness before", before);
    deeds.all("staleness during a recount", meanwhile);
    Ok(deeds)
}

/// Changes a count of each of `posts` by hand; when that was done.
async fn drift(stage: &Stage, posts: &[CounterId], corrections: &Corrections) -> anyhow::Result<Instant> {
    for id in posts {
        stage.honesty.injected(id, DRIFT);
        corrections.expect(id);
        let changed = json!({
            "TableName": "like_counts",
            "Key": {"post_id": {"S": id.stored()}},
            "UpdateExpression": "ADD likes :n, s0 :n",
            "ConditionExpression": "attribute_exists(likes)",
            "ExpressionAttributeValues": {":n": {"N": DRIFT.to_string()}},
        });
        // A post that nobody has liked yet has no counter.
        let done = async || undisturbed::send(&stage.engines.emulator, "UpdateItem", &changed).await;
        until(&format!("{id} to be changed by hand"), COUNTED, done).await?;
    }
    Ok(Instant::now())
}

/// Recounts `posts` as an operator does; how long that took.
async fn recount(stage: &Stage, posts: &[CounterId], began: Instant) -> anyhow::Result<Duration> {
    let posts = posts.iter().map(|id| id.post.as_str());
    let words: Vec<&str> = ["recount"].into_iter().chain(posts).collect();
    stage.fleet.launcher.operator().change(&words).await?;
    Ok(began.elapsed())
}

/// When each count that was changed by hand was corrected, if it was; clones are the same.
#[derive(Clone, Debug, Default)]
struct Corrections(Arc<Mutex<BTreeMap<String, Option<Instant>>>>);

impl Corrections {
    /// As the table tells it.
    fn of(engines: &Engines) -> anyhow::Result<Self> {
        let corrections = Self::default();
        let kept = corrections.clone();
        engines.emulator.watch("like_counts", move |changed| {
            let (Some(old), Some(new)) = (&changed.old, &changed.new) else { return };
            // Before it is corrected it is called doubtful.
            let is_corrected = new.whole("c") > old.whole("c") && new.get("doubt").is_none();
            if let Some(at) = new.text("post_id").filter(|_| is_corrected) {
                kept.0.lock().entry(at.to_owned()).and_modify(|at| *at = at.or(Some(Instant::now())));
            }
        })?;
        Ok(corrections)
    }

    /// A count is about to be changed.
    fn expect(&self, id: &CounterId) {
        self.0.lock().insert(id.stored().into_owned(), None);
    }

    /// Since when a count is corrected: since for ever if it was never changed. `None` while it is wrong.
    fn since(&self, id: &CounterId) -> Option<Option<Instant>> {
        match self.0.lock().get(&*id.stored()) {
            None => Some(None),
            Some(at) => at.map(Some),
        }
    }

    fn are_all_in(&self) -> bool {
        self.0.lock().values().all(Option::is_some)
    }

    /// How long after `began` the last one was.
    fn slowest(&self, began: Instant) -> Duration {
        self.0.lock().values().flatten().map(|at| at.duration_since(began)).max().unwrap_or_default()
    }
}

/// Asks an API for the counts that are changed, one after the other.
struct Reader<'a> {
    /// What it reads.
    of: &'static str,
    stage: &'a Stage,
    api: Arc<Process>,
    posts: &'a [CounterId],
    corrections: &'a Corrections,
    /// Makes no room for what was changed by hand.
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
        let address = self.api.public().context("the api listens nowhere")?;
        let (asked, since) = (Instant::now(), self.corrections.since(id));
        let answer = tally_testkit::http::get(address, &format!("/v1/posts/{}/likes", id.post)).await;
        // An API that is busy claims nothing.
        let Some(answer) = answer.filter(|answer| answer.status == 200) else { return Ok(()) };
        let count = serde_json::from_str(&answer.body).with_context(|| format!("no count: {answer:?}"))?;
        // One that is wrong, or has become wrong meanwhile, claims nothing that a law could judge.
        let Some(since) = since.filter(|since| self.corrections.since(id) == Some(*since)) else { return Ok(()) };
        if let Some(lie) = self.strict.lie(&count) {
            let late = since.map(|since| asked.duration_since(since));
            bail!("asked {late:?} after the correction: {lie}");
        }
        Ok(())
    }

    /// What came of it.
    fn told(&self) -> String {
        let count = self.strict.count();
        format!("a reader {:<18} {} answers, {} exact, no lie", self.of, count.answers, count.exact)
    }
}

/// How long after Kafka had each like of a probe the count included it, and when that was; clones are the same.
#[derive(Clone, Debug, Default)]
struct Ages(Arc<Mutex<Vec<(Instant, Duration)>>>);

impl Ages {
    fn add(&self, said: Instant, age: Duration) {
        self.0.lock().push((said, age));
    }

    fn between(&self, from: Instant, until: Instant) -> Recoveries {
        let ages = self.0.lock();
        let mut between = Recoveries::default();
        ages.iter().filter(|(said, _)| (from..until).contains(said)).for_each(|(_, age)| between.add(*age));
        between
    }
}

/// Likes a post of its own, one like after the other, and asks for its count until it has the like.
async fn probe(stage: &Stage, nth: u64, ages: &Ages, over: Stop) -> anyhow::Result<()> {
    let producer = kafka::Producer::new(&kafka::Settings::plaintext(&stage.engines.broker.to_string()))?;
    let post = PostId::new(&format!("probe-{nth}")).context("an id")?;
    let mut likes: u64 = 0;
    while !over.is_requested() {
        let saying = stage.ledger.lock().like(&post, &events::user(likes));
        likes += 1;
        utter(producer.clone(), stage.ledger.clone(), vec![saying]).await?;
        let said = Instant::now();
        while counted(stage, &post).await < likes {
            ensure!(said.elapsed() < COUNTED, "like {likes} of {post} is not counted");
            sleep(LOOK).await;
        }
        ages.add(said, said.elapsed());
        sleep(stage.chance.millis(SHORTEST, LONGEST)).await;
    }
    Ok(())
}

/// The likes of a post as the API answers them; none while it does not answer.
async fn counted(stage: &Stage, post: &PostId) -> u64 {
    let Some(address) = stage.fleet.api().public() else { return 0 };
    let answer = tally_testkit::http::get(address, &format!("/v1/posts/{post}/likes")).await;
    let count = answer.and_then(|answer| serde_json::from_str::<serde_json::Value>(&answer.body).ok());
    count.and_then(|count| count["likes"].as_u64()).unwrap_or(0)
}
