//! Property tests that compare the scripts of the Redis cache with the rules of the core: for any sequence of events
//! both give the same answers, and have the same contents afterwards.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use redis::Commands;
use tally_adapters::memory;
use tally_adapters::redis::PartitionCache;
use tally_core::cached::{Cache, FillToken, Got, TakeOver, Value};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;

use super::server::Server;
use crate::likes::post;
use crate::partitions::{at, own, value};

/// An event of one partition. Folds, tokens and copies are identified by index, modulo their number.
#[derive(Clone, Debug)]
enum Happening {
    TakeOver {
        fold: usize,
        is_other: bool,
        place: u64,
    },
    Tell {
        fold: usize,
        values: Vec<(usize, u64)>,
        stated: Option<u64>,
        fate: Fate,
    },
    /// An earlier write arrives again.
    Again(usize),
    BeginFill(usize),
    Fill {
        token: usize,
        version: u64,
    },
    Expire(Option<usize>),
    Remember,
    Forget,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    Unanswered,
    NeverArrives,
}

fn happening() -> impl Strategy<Value = Happening> {
    let fate = prop_oneof![6 => Just(Fate::Answered), 1 => Just(Fate::Unanswered), 1 => Just(Fate::NeverArrives)];
    let told = (0..2usize, vec((0..2usize, 8..13u64), 0..3), option::weighted(0.3, 8..13u64), fate);
    let take_over = (0..2usize, prop::bool::weighted(0.2), 8..13u64);
    prop_oneof![
        2 => take_over.prop_map(|(fold, is_other, place)| Happening::TakeOver { fold, is_other, place }),
        8 => told.prop_map(|(fold, values, stated, fate)| Happening::Tell { fold, values, stated, fate }),
        1 => any::<usize>().prop_map(Happening::Again),
        4 => (0..2usize).prop_map(Happening::BeginFill),
        4 => (any::<usize>(), 8..13u64).prop_map(|(token, version)| Happening::Fill { token, version }),
        1 => option::weighted(0.7, 0..2usize).prop_map(Happening::Expire),
        1 => Just(Happening::Remember),
        1 => Just(Happening::Forget),
    ]
}

/// The hold before a write, and the values that it wrote.
type Written = (TakeOver, Vec<(CounterId, Value)>, Option<u64>);

/// A cache, and what its callers know.
struct Side<C> {
    cache: C,
    partition: u32,
    posts: [CounterId; 2],
    holds: [Option<TakeOver>; 2],
    writes: Vec<Written>,
    tokens: Vec<(CounterId, FillToken)>,
}

impl<C: Cache> Side<C> {
    fn new(cache: C, partition: u32) -> Self {
        let posts = ["p", "q"].map(post);
        Self { cache, partition, posts, holds: [None, None], writes: Vec::new(), tokens: Vec::new() }
    }

    async fn tells(&self, hold: &mut TakeOver, values: &[(CounterId, Value)], stated: Option<u64>) -> String {
        format!("{:?}", self.cache.tell(self.partition, hold, values, stated.map(at).as_ref()).await)
    }

    /// The outcome, in words that are the same for all caches.
    async fn does(&mut self, happening: &Happening) -> String {
        let partition = self.partition;
        match happening {
            Happening::TakeOver { fold, is_other, place } => {
                let of = if *is_other { DeploymentId("other".into()) } else { own() };
                let hold = self.cache.take_over(partition, &of, &at(*place)).await.unwrap();
                self.holds[*fold] = hold.clone().or(self.holds[*fold].take());
                hold.is_some().to_string()
            }
            Happening::Tell { fold, values, stated, fate } => {
                let Some(mut hold) = self.holds[*fold].clone() else { return String::new() };
                let values: Vec<_> =
                    values.iter().map(|(nth, version)| (self.posts[*nth].clone(), value(*version))).collect();
                self.writes.push((hold.clone(), values.clone(), *stated));
                let mut unanswered = hold.clone();
                unanswered.stamp();
                let answer = match fate {
                    Fate::NeverArrives => String::new(),
                    _ => self.tells(&mut hold, &values, *stated).await,
                };
                self.holds[*fold] = Some(if matches!(fate, Fate::Answered) { hold } else { unanswered });
                answer
            }
            Happening::Again(nth) => {
                let Some(nth) = nth.checked_rem(self.writes.len()) else { return String::new() };
                let (mut hold, values, stated) = self.writes[nth].clone();
                self.tells(&mut hold, &values, stated).await
            }
            Happening::BeginFill(nth) => {
                let token = self.cache.begin_fill(partition, &self.posts[*nth]).await.unwrap();
                self.tokens.extend(token.map(|token| (self.posts[*nth].clone(), token)));
                token.is_some().to_string()
            }
            Happening::Fill { token, version } => {
                let Some(nth) = token.checked_rem(self.tokens.len()) else { return String::new() };
                let (post, token) = &self.tokens[nth];
                self.cache.fill(partition, post, token, &value(*version)).await.unwrap().to_string()
            }
            Happening::Expire(_) | Happening::Remember | Happening::Forget => String::new(),
        }
    }

    /// Everything but the number of the take-over, which is random. Of the last token, the sequence number at which it
    /// was given: a late copy of the request gets another token once the fold has written.
    async fn got(&self) -> String {
        let Got { taken, stated, values } = self.cache.get(self.partition, &self.posts).await.unwrap();
        let token = self.tokens.last().map(|(_, token)| token.to_string());
        let sequence = token.as_ref().and_then(|token| token.split(':').nth(2));
        format!("{:?} {stated:?} {values:?} {sequence:?}", taken.map(|taken| taken.of))
    }
}

/// What a server has of one partition, and what it had when it was saved.
struct Raw {
    connection: redis::Connection,
    keys: [String; 3],
    remembered: [Option<String>; 3],
}

impl Raw {
    fn happens(&mut self, happening: &Happening) {
        match happening {
            Happening::Expire(nth) => self.connection.del(&self.keys[nth.map_or(0, |nth| nth + 1)]).unwrap(),
            Happening::Remember => self.remembered = self.keys.each_ref().map(|key| self.connection.get(key).unwrap()),
            Happening::Forget => {
                for (key, text) in self.keys.iter().zip(&self.remembered) {
                    match text {
                        Some(text) => self.connection.set(key, text).unwrap(),
                        None => self.connection.del(key).unwrap(),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Runs the same sequence on both sides, and compares the answers.
async fn agree(server: &Server, partition: u32, sequence: &[Happening]) -> Vec<String> {
    let memory = memory::PartitionCache::default();
    let mut kept = memory.snapshot(partition);
    let mut rules = Side::new(memory.clone(), partition);
    let mut scripts = Side::new(PartitionCache::new(&server.settings()).unwrap(), partition);
    let keys = [format!("{{{partition}}}"), format!("{{{partition}}}likes:p"), format!("{{{partition}}}likes:q")];
    let mut raw = Raw { connection: server.raw(), keys, remembered: [const { None }; 3] };
    let mut met = Vec::new();
    for happening in sequence {
        raw.happens(happening);
        match happening {
            Happening::Expire(None) => memory.evict_standing(partition),
            Happening::Expire(Some(nth)) => memory.evict(partition, &rules.posts[*nth]),
            Happening::Remember => kept = memory.snapshot(partition),
            Happening::Forget => memory.restore(partition, kept.clone()),
            _ => {}
        }
        let expected = rules.does(happening).await;
        assert_eq!(scripts.does(happening).await, expected, "{happening:?}");
        assert_eq!(scripts.got().await, rules.got().await, "after {happening:?}");
        let kind = format!("{happening:?}");
        met.push(format!("{} {expected}", kind.split([' ', '(']).next().unwrap()));
    }
    met
}

#[test]
#[ignore = "needs redis-server; .ci/night runs it"]
fn the_scripts_follow_the_rules_of_the_core() {
    use proptest::test_runner::{Config, TestRunner};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start(false));
    let cases = Config { cases: 400, failure_persistence: None, ..Config::default() };
    let (partitions, met) = (std::cell::Cell::new(0), std::cell::RefCell::new(BTreeMap::new()));
    let drawn = TestRunner::new(cases).run(&vec(happening(), 1..60), |sequence| {
        partitions.set(partitions.get() + 1);
        for one in runtime.block_on(agree(&server, partitions.get(), &sequence)) {
            *met.borrow_mut().entry(one).or_insert(0) += 1;
        }
        Ok(())
    });
    drawn.unwrap();
    let met = met.into_inner();
    for one in [
        "TakeOver true",
        "TakeOver false",
        "Tell Ok(Lost)",
        "Tell Ok(Written(1))",
        "Tell Ok(Written(2))",
        "Again Ok(Written(0))",
        "Again Ok(Lost)",
        "BeginFill true",
        "BeginFill false",
        "Fill true",
        "Fill false",
    ] {
        assert!(met.get(one).is_some_and(|times| *times > 9), "{one} is too rare: {met:?}");
    }
}
