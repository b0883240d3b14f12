//! Clients that ask the API during a run of the simulation. They request single counts and batches from instances that
//! work, are frozen, or have just started, and each answer is judged by whether its claims are true. Requests reach an
//! instance without a socket.
//!
//! Clients ask often while something happens, and more and more rarely while nothing does: a schedule has hours in which no
//! number changes.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tally_core::ids::{CounterId, CounterName, PostId};
use tally_count_api::limits::Peer;
use tally_count_api::routes::Front;
use tally_service::{Chance, Stage, Standstill, Stop};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::simulation::Draws;
use crate::simulation::honest::Answer;
use crate::simulation::world::World;

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// The likes of posts.
    Likes(Vec<PostId>),
    /// One counter.
    One(CounterId),
    /// Every counter of a post.
    All(PostId),
    /// These counters of each of these posts.
    Several(Vec<PostId>, Vec<CounterName>),
}

impl Question {
    fn request(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let get = |path: String| Request::get(path).header(HOST, "door").body(Full::default());
        let post = |path: &str, body: &Value| {
            let request = Request::post(path).header(HOST, "door").header("content-type", "application/json");
            request.body(Full::new(Bytes::from(body.to_string())))
        };
        let texts = |posts: &[PostId]| posts.iter().map(|post| post.as_str().to_owned()).collect::<Vec<_>>();
        Ok(match self {
            Self::Likes(posts) if posts.len() == 1 => get(format!("/v1/posts/{}/likes", posts[0]))?,
            Self::Likes(posts) => post("/v1/likes:batchGet", &json!({ "post_ids": texts(posts) }))?,
            Self::One(id) => get(format!("/v1/posts/{}/counters/{}", id.post, id.name))?,
            Self::All(post) => get(format!("/v1/posts/{post}/counters"))?,
            Self::Several(posts, names) => {
                let names: Vec<&str> = names.iter().map(CounterName::as_str).collect();
                post("/v1/counters:batchGet", &json!({ "post_ids": texts(posts), "counters": names }))?
            }
        })
    }

    /// Parses the counts in the body of an answer.
    fn answers(&self, mut body: Value) -> anyhow::Result<Vec<Answer>> {
        let counts = match self {
            Self::Likes(posts) if posts.len() == 1 => json!([body]),
            Self::One(_) => json!([body]),
            Self::Likes(_) | Self::Several(..) => body["counts"].take(),
            Self::All(post) => {
                let figures = body["counters"].as_object_mut().into_iter().flatten();
                let named = figures.map(|(name, figures)| {
                    figures["post_id"] = json!(post.as_str());
                    figures["counter"] = json!(name);
                    figures.take()
                });
                named.collect()
            }
        };
        Ok(serde_json::from_value(counts)?)
    }
}

/// The entry to one instance. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Door {
    behind: Arc<Mutex<Behind>>,
    /// Holds requests back. The instance's own tasks resume after them, so that a request can be answered before the instance
    /// has read anything again.
    pub(crate) standstill: Standstill,
}

/// The instance behind a door.
#[derive(Default)]
struct Behind {
    life: u64,
    starting: Option<oneshot::Receiver<Front>>,
    front: Option<Front>,
}

impl Door {
    /// The instance starts; `starting` yields its routes when it is ready.
    pub(crate) fn open(&self, starting: oneshot::Receiver<Front>) {
        let mut behind = self.behind.lock();
        *behind = Behind { life: behind.life + 1, starting: Some(starting), front: None };
    }

    /// The instance and its requests have ended.
    pub(crate) fn close(&self) {
        let mut behind = self.behind.lock();
        *behind = Behind { life: behind.life + 1, starting: None, front: None };
        self.standstill.end();
    }

    /// The routes, if the instance is ready, and the number of its life.
    fn front(&self) -> Option<(u64, Front)> {
        let mut behind = self.behind.lock();
        if let Some(front) = behind.starting.as_mut().and_then(|starting| starting.try_recv().ok()) {
            (behind.starting, behind.front) = (None, Some(front));
        }
        Some((behind.life, behind.front.clone()?))
    }

    /// The counts that the instance answers. `None` if there is no instance, it has ended meanwhile, it answers without a
    /// count, or it does not know a counter yet.
    pub(crate) async fn ask(&self, question: &Question) -> anyhow::Result<Option<Vec<Answer>>> {
        let Some((life, front)) = self.front() else { return Ok(None) };
        let request = question.request()?;
        let peer = Peer::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let exchange = async {
            let Ok(response) = front.answer(request, &peer).await;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| anyhow::anyhow!(error.to_string()))?;
            anyhow::Ok((head.status, body.to_bytes()))
        };
        let (status, body) = self.standstill.hold(exchange).await?;
        // Other counters than likes may be defined later.
        let undefined = status == http::StatusCode::NOT_FOUND && !matches!(question, Question::Likes(_));
        if self.behind.lock().life != life || status == http::StatusCode::SERVICE_UNAVAILABLE || undefined {
            return Ok(None);
        }
        ensure!(status == http::StatusCode::OK, "the api answered {status}: {body:?}");
        question.answers(serde_json::from_slice(&body)?).map(Some)
    }
}

/// How long a client waits for an answer: longer than an instance is frozen in most cases.
const PATIENCE: Duration = Duration::from_secs(40);

/// How long after the last event clients keep their usual pace.
const LIVELY: Duration = Duration::from_secs(12);

/// The longest pause after that.
const LONGEST: Duration = Duration::from_secs(20);

/// The time of the last event by which numbers may change, and how long nothing at all happens. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    origin: Instant,
    /// In milliseconds after the origin.
    last: Arc<AtomicU64>,
    over: Arc<AtomicU64>,
}

impl Pulse {
    /// Something happens now.
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), last: Arc::default(), over: Arc::default() }
    }

    /// Something happens again.
    pub(crate) fn beat(&self) {
        self.last.store(self.millis(Instant::now()), Ordering::Relaxed);
    }

    /// Whether something has happened lately.
    pub(crate) fn is_lively(&self) -> bool {
        self.origin.elapsed() < Duration::from_millis(self.last.load(Ordering::Relaxed)) + LIVELY
    }

    /// No process of the pipeline runs until `over`.
    pub(crate) fn rest(&self, over: Instant) {
        self.over.store(self.millis(over), Ordering::Relaxed);
    }

    /// When the last time ends or ended for which no process ran.
    pub(crate) fn rested(&self) -> Instant {
        self.origin + Duration::from_millis(self.over.load(Ordering::Relaxed))
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from((at - self.origin).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A client of one instance.
pub(crate) struct Reader {
    pub(crate) name: String,
    pub(crate) door: Door,
    pub(crate) chance: Chance,
    /// The counters that it requests, grouped by post, likes first.
    pub(crate) counters: Vec<CounterId>,
    /// The longest pause between two requests while something happens, in milliseconds.
    pub(crate) pace: u64,
}

impl Reader {
    /// Makes requests until the world ends.
    pub(crate) fn start(self, world: &Arc<World>) {
        let known = Arc::clone(world);
        let mut posts: Vec<PostId> = self.counters.iter().map(|id| id.post.clone()).collect();
        posts.dedup();
        let name = self.name.clone();
        world.host.worker(Stage::Intake, &name, move |_: Stop| async move {
            let World { honesty, breaches, trace, pulse, clock, .. } = &*known;
            let mut wait = Duration::ZERO;
            loop {
                let usual = self.chance.millis(5, self.pace);
                wait = if pulse.is_lively() { usual } else { (wait * 2).clamp(usual, LONGEST) };
                sleep(wait).await;
                let (question, asked) = (self.draw(&posts), clock.now());
                let answers = match timeout(PATIENCE, self.door.ask(&question)).await {
                    Ok(Ok(Some(answers))) => answers,
                    Ok(Ok(None)) | Err(_) => continue,
                    Ok(Err(error)) => {
                        breaches.add(format!("{error:#}"));
                        continue;
                    }
                };
                for answer in &answers {
                    trace.record(|line| _ = write!(line, "{} {answer:?}", self.name));
                    for lie in honesty.lie(answer).into_iter().chain(answer.stale(asked)) {
                        breaches.add(format!("{}: {lie}", self.name));
                    }
                }
            }
        });
    }

    /// Draws the next request: about likes, or about any counter if there are others.
    fn draw(&self, posts: &[PostId]) -> Question {
        if self.counters.len() == posts.len() || self.chance.happens(40) {
            return Question::Likes(self.some(posts));
        }
        let one = self.counters[self.chance.place(self.counters.len())].clone();
        match self.chance.below(3) {
            0 => Question::One(one),
            1 => Question::All(one.post),
            _ => {
                let names: Vec<CounterName> = self.counters.iter().map(|id| id.name.clone()).collect();
                let names = self.some(&names[..names.len() / posts.len()]);
                Question::Several(self.some(posts), names)
            }
        }
    }

    /// One of `all`, or several.
    fn some<T: Clone + Ord>(&self, all: &[T]) -> Vec<T> {
        let one = |_| all[self.chance.place(all.len())].clone();
        let several = if self.chance.happens(30) { self.chance.between(2, 6) } else { 1 };
        let mut drawn: Vec<T> = (0..several).map(one).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }
}
