//! Clients of the API, who ask all the time while a schedule runs: single counts and batches, of instances that are well,
//! that stand still and that have just started. Each answer is held against the law of honesty.
//!
//! They ask often while something happens, and less and less often while nothing does: a schedule has hours in which no
//! number changes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tally_core::ids::{CounterId, CounterName, PostId};
use tally_service::{Chance, Host, Stage, Stop};
use tokio::time::{Instant, sleep, timeout};

use super::chance::Draws;
use super::door::{Door, Question};
use super::world::World;

/// How long a client waits for an answer: longer than an instance stands still in most cases.
const PATIENCE: Duration = Duration::from_secs(40);

/// How long after the last thing that happened clients ask at their usual pace.
const LIVELY: Duration = Duration::from_secs(12);

/// The longest that they wait then.
const LONGEST: Duration = Duration::from_secs(20);

/// When something last happened that numbers may change by; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Pulse(Arc<(Instant, AtomicU64)>);

impl Pulse {
    /// Something happens now.
    pub(crate) fn new() -> Self {
        Self(Arc::new((Instant::now(), AtomicU64::new(0))))
    }

    /// Something happens again.
    pub(crate) fn beat(&self) {
        let (origin, last) = &*self.0;
        last.store(u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn is_lively(&self) -> bool {
        let (origin, last) = &*self.0;
        origin.elapsed() < Duration::from_millis(last.load(Ordering::Relaxed)) + LIVELY
    }
}

/// One client of one instance.
pub(crate) struct Reader {
    pub(crate) name: String,
    pub(crate) door: Door,
    pub(crate) chance: Chance,
    /// What it asks for: those of one post follow each other, likes first.
    pub(crate) counters: Vec<CounterId>,
    /// The longest wait between two questions, in milliseconds, while something happens.
    pub(crate) pace: u64,
}

impl Reader {
    /// Has it ask until `host` is killed.
    pub(crate) fn start(self, host: &Host, world: &World) {
        let (honesty, breaches) = (world.honesty.clone(), world.breaches.clone());
        let (trace, pulse) = (world.trace.clone(), world.pulse.clone());
        let mut posts: Vec<PostId> = self.counters.iter().map(|id| id.post.clone()).collect();
        posts.dedup();
        let name = self.name.clone();
        host.worker(Stage::Intake, &name, move |_: Stop| async move {
            let mut wait = Duration::ZERO;
            loop {
                let usual = self.chance.millis(5, self.pace);
                wait = if pulse.is_lively() { usual } else { (wait * 2).clamp(usual, LONGEST) };
                sleep(wait).await;
                let asked = self.draw(&posts);
                let answers = match timeout(PATIENCE, self.door.ask(&asked)).await {
                    Ok(Ok(Some(answers))) => answers,
                    Ok(Ok(None)) | Err(_) => continue,
                    Ok(Err(error)) => {
                        breaches.add(format!("{error:#}"));
                        continue;
                    }
                };
                for answer in &answers {
                    trace.say(|line| _ = write!(line, "{} {answer:?}", self.name));
                    if let Some(lie) = honesty.lie(answer) {
                        breaches.add(format!("{}: {lie}", self.name));
                    }
                }
            }
        });
    }

    /// The next question: about likes, or where there are other counters about any of them.
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

    /// One of `all`, or several at once.
    fn some<T: Clone + Ord>(&self, all: &[T]) -> Vec<T> {
        let one = |_| all[self.chance.place(all.len())].clone();
        let several = if self.chance.happens(30) { self.chance.between(2, 6) } else { 1 };
        let mut drawn: Vec<T> = (0..several).map(one).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }
}
