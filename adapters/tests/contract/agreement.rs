//! The twin runs core's own decision functions; the adapter puts them into expressions. Whatever is asked of both, they
//! give the same verdict and leave the same state.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;
use tally_core::batch::Change;
use tally_core::counter::{ClosedAncestry, Counter, Feeder, Retry, Touch, Update, after_refusal};
use tally_core::event::Action;
use tally_core::fence::{Advance, Fence, Offset, TopicId};
use tally_core::ids::{Ordinal, RowKey};
use tally_core::milestone::{Bound, Guard};
use tally_core::ports::Applied;
use tally_core::time::UnixMillis;
use tally_core::watermark::Prune;
use tally_core::window::{Form, Verdict, WindowRun};

use crate::counts::milestones::{member, milestone};
use crate::counts::{entry, shard, touch, update};
use crate::engine::{Env, in_process, shards};
use crate::likes::{fence, partition, post, user};

/// One thing asked of a counter.
#[derive(Clone, Debug)]
enum Asked {
    Update(Update),
    /// Of the run whose token stands, where `run` is none.
    Verdict {
        k: u16,
        run: Option<u128>,
        correction: i64,
        form: Form,
    },
    Mend {
        behind: u64,
        sum: i64,
    },
}

fn feeder() -> impl Strategy<Value = Feeder> {
    prop_oneof![
        4 => Just(Feeder::Usual),
        1 => (1..5u64).prop_map(|from| Feeder::Inherit { from: Ordinal(from) }),
        4 => (1..4u64).prop_map(|from| Feeder::Contest { from: Ordinal(from) }),
    ]
}

fn touches() -> impl Strategy<Value = Vec<Touch>> {
    let one = (-2..4i64, feeder(), option::weighted(0.2, 1..4u128), prop::bool::weighted(0.1));
    btree_map(0..3u16, one, 0..=3).prop_map(|touched| {
        let touch = |(k, (delta, feeder, run, doubt)): (u16, (i64, Feeder, Option<u128>, bool))| match run {
            Some(run) => Touch { feeder, window: Some(run.into()), ..touch(k, 0) },
            None => Touch { feeder, doubt, ..touch(k, delta) },
        };
        touched.into_iter().map(touch).collect()
    })
}

/// A guard whose version is how far behind the counter's it is.
fn guards() -> impl Strategy<Value = Option<Guard>> {
    let thresholds = subsequence(vec![1, 2, 3, 5, 8], 1..4).prop_map(|thresholds: Vec<i64>| {
        let through = *thresholds.last().unwrap();
        let reached = thresholds.into_iter().map(|n| milestone(n, member(&format!("u-{n}")))).collect();
        (reached, through)
    });
    let crossing = (prop_oneof![4 => Just(0u64), 1 => 1..3u64], thresholds)
        .prop_map(|(version, (reached, through))| Bound::Crossing { version, reached, through });
    let bound = prop_oneof![2 => Just(Bound::Free), 4 => (-1..20i64).prop_map(Bound::Below), 3 => crossing];
    let knows = prop_oneof![8 => Just(3u32), 1 => 0..3u32];
    option::weighted(0.4, (knows, bound).prop_map(|(knows, bound)| Guard { knows, bound }))
}

/// The update with its guard's version counted back from the one that stands.
fn at_version(mut update: Update, standing: u64) -> Update {
    if let Some(Guard { bound: Bound::Crossing { version, .. }, .. }) = &mut update.guard {
        *version = standing.saturating_sub(*version);
    }
    update
}

/// A prune as core makes them: below the stream shard that updates.
fn prune(g: u64) -> impl Strategy<Value = Option<Prune>> {
    let below = (1..g).map(Ordinal).collect::<Vec<_>>();
    let of = move |floor: u64| {
        let finished = below.iter().copied().filter(|shard| shard.0 <= floor).collect::<Vec<_>>();
        let most = finished.len();
        subsequence(finished, 0..=most).prop_map(move |finished| Prune { floor: Ordinal(floor), finished })
    };
    if g < 2 { Just(None).boxed() } else { option::weighted(0.4, (1..g).prop_flat_map(of)).boxed() }
}

fn updates() -> impl Strategy<Value = Update> {
    let kin = (vec((1..5u64).prop_map(Ordinal), 0..3), option::of((1..4u64).prop_map(Ordinal)));
    let records = (1..60u64, 0..8u64);
    (1..5u64).prop_flat_map(move |g| {
        (records.clone(), touches(), kin.clone(), prune(g), guards()).prop_map(
            move |((first, more), touched, (ancestors, closed_through), prune, guard)| Update {
                ancestors,
                closed_through,
                prune,
                guard,
                ..update(g, first, first + more, touched)
            },
        )
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let form = prop_oneof![Just(Form::Plain), (0..3u64).prop_map(|switches| Form::Suspect { switches })];
    let verdict = (0..3u16, option::weighted(0.25, 1..4u128), -3..4i64, form)
        .prop_map(|(k, run, correction, form)| Asked::Verdict { k, run, correction, form });
    prop_oneof![
        8 => updates().prop_map(Asked::Update),
        3 => verdict,
        1 => (0..2u64, -5..5i64).prop_map(|(behind, sum)| Asked::Mend { behind, sum }),
    ]
}

/// Shard 1 is closed, and an ancestor of all the others.
struct Family;
impl ClosedAncestry for Family {
    fn is_closed_ancestor(&self, shard: Ordinal, _: Ordinal) -> bool {
        shard == Ordinal(1)
    }
}

/// Applies an update to both; answers what follows from a refusal.
async fn apply(twin: &Env, real: &Env, update: &Update) -> Option<Update> {
    let post = post("p");
    let expected = twin.counts.apply(&post, update).await.unwrap();
    assert_eq!(real.counts.apply(&post, update).await.unwrap(), expected, "{update:?}");
    let Applied::Refused(counter) = expected else { return None };
    match after_refusal(update, counter.as_ref(), &Family) {
        Retry::Changed(update) => Some(update),
        _ => None,
    }
}

async fn ask(twin: &Env, real: &Env, asked: &Asked, at: u64) {
    let post = post("p");
    match asked {
        Asked::Update(update) => {
            let standing = twin.counts.counter(&post).await.unwrap().map_or(0, |counter| counter.version);
            let update = at_version(update.clone(), standing);
            let mut next = Some(update);
            while let Some(update) = next {
                next = apply(twin, real, &update).await;
            }
        }
        Asked::Verdict { k, run, correction, form } => {
            let key = RowKey { counter: post.clone(), shard: shard(*k) };
            let standing = twin.counts.counter(&post).await.unwrap().and_then(|mut counter| {
                let tally = counter.shards.remove(&key.shard)?;
                tally.window.map(|window| window.run)
            });
            let run = run.map(WindowRun::from).or(standing).unwrap_or(WindowRun::from(0));
            let verdict = Verdict { key, run, correction: *correction, form: *form };
            let entry = entry(&post, verdict.run, at);
            let expected = twin.counts.judge(&verdict, &entry).await.unwrap();
            assert_eq!(real.counts.judge(&verdict, &entry).await.unwrap(), expected, "{verdict:?}");
        }
        Asked::Mend { behind, sum } => {
            let version = twin.counts.counter(&post).await.unwrap().map_or(0, |counter| counter.version);
            let entry = entry(&post, 9.into(), at);
            let version = version.saturating_sub(*behind);
            let expected = twin.counts.mend_total(&post, version, *sum, &entry).await.unwrap();
            assert_eq!(real.counts.mend_total(&post, version, *sum, &entry).await.unwrap(), expected);
        }
    }
}

/// A batch offered under some fence; most often the one that stands.
type Offered = (u64, u64, bool, BTreeMap<(u8, u8), (bool, u64)>);

fn offered() -> impl Strategy<Value = Offered> {
    let rows = btree_map((0..3u8, 0..6u8), (any::<bool>(), 1..4u64), 0..5);
    let behind = prop_oneof![4 => Just(0u64), 1 => 1..3u64];
    let cfg = prop_oneof![5 => Just(0u64), 1 => Just(1)];
    (behind, cfg, prop::bool::weighted(0.9), rows)
}

async fn offer(twin: &Env, real: &Env, (behind, cfg, same_topic, rows): &Offered) {
    let partition = partition("t", 3);
    let standing = twin.fenced.fence(&partition).await.unwrap().map_or(0, |fence| fence.offset.0);
    let topic = TopicId(if *same_topic { "t-1".into() } else { "t-2".into() });
    let from = Fence::new(Offset(standing.saturating_sub(*behind)), *cfg, topic);
    let advance = Advance { to: from.offset.next(), from };
    let rows: Vec<_> = rows
        .iter()
        .map(|((p, u), (like, at))| (post(&format!("p{p}#")), user(&format!("u{u}")), *like, UnixMillis(*at)))
        .collect();
    let action = |like: &bool| if *like { Action::Like } else { Action::Unlike };
    let changes: Vec<_> =
        rows.iter().map(|(post, user, like, at)| Change::like(post, user, action(like), *at)).collect();
    let expected = twin.fenced.commit(&partition, &advance, &changes).await;
    assert_eq!(real.fenced.commit(&partition, &advance, &changes).await, expected, "{advance:?}");
    assert_eq!(real.fenced.fence(&partition).await, twin.fenced.fence(&partition).await);
}

/// Both, run by a runtime of their own: a case is synchronous.
fn with_both(case: impl AsyncFnOnce(&Env, &Env)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_, connection) = in_process();
        case(&Env::twin(), &Env::dynamodb(&connection).await).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_counter_is_the_same_whoever_decides(sequence in vec(asked(), 1..30)) {
        with_both(async |twin, real| {
            for (at, asked) in sequence.iter().enumerate() {
                ask(twin, real, asked, at as u64).await;
                let post = post("p");
                let expected: Option<Counter> = twin.counts.counter(&post).await.unwrap();
                assert_eq!(real.counts.counter(&post).await.unwrap(), expected, "after {asked:?}");
            }
            let post = post("p");
            assert_eq!(real.recounts.ledger(&post, 99).await, twin.recounts.ledger(&post, 99).await);
            assert_eq!(real.recounts.milestones(&post, 99).await, twin.recounts.milestones(&post, 99).await);
        });
    }

    #[test]
    fn rows_are_the_same_whoever_decides(sequence in vec(offered(), 1..15)) {
        with_both(async |twin, real| {
            let partition = partition("t", 3);
            for env in [twin, real] {
                env.fenced.create_fence(&partition, &fence(0)).await.unwrap();
            }
            for offered in &sequence {
                offer(twin, real, offered).await;
            }
            for (p, shard) in (0..3).flat_map(|p| shards().all().map(move |shard| (p, shard))) {
                let key = RowKey { counter: post(&format!("p{p}#")), shard };
                let expected = twin.rows.likes(&key, None, None).await.unwrap().items;
                assert_eq!(real.rows.likes(&key, None, None).await.unwrap().items, expected, "{key}");
            }
        });
    }
}

#[test]
fn the_sequences_drawn_meet_every_verdict() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut met: BTreeMap<String, u32> = BTreeMap::new();
    let mut count = |what: String| *met.entry(what).or_default() += 1;
    for _ in 0..400 {
        let sequence = vec(updates(), 1..30).new_tree(&mut runner).unwrap().current();
        let mut counter = Counter::default();
        for update in sequence {
            let update = at_version(update, counter.version);
            let refusal = counter.refusal(&update);
            count(format!("{refusal:?}"));
            if refusal.is_none() {
                let contested = update.touched.iter().any(|touch| matches!(touch.feeder, Feeder::Contest { .. }));
                count(format!("taken, contested {contested}, pruned {}", update.prune.is_some()));
                if update.guard.as_ref().is_some_and(|guard| !guard.reached().is_empty()) {
                    count("crossed".to_owned());
                }
                counter = counter.updated(&update).unwrap();
            }
        }
    }
    let verdicts = ["None", "Some(Applied)", "Some(Floor)", "Some(Feeder)", "Some(Ladder)", "Some(Total)"];
    let taken = [true, false].map(|contested| [true, false].map(|pruned| (contested, pruned))).concat();
    let taken = taken.iter().map(|(contested, pruned)| format!("taken, contested {contested}, pruned {pruned}"));
    for wanted in verdicts.map(String::from).into_iter().chain(taken).chain(["crossed".to_owned()]) {
        assert!(met.get(&wanted).is_some_and(|times| *times >= 10), "{wanted}: {met:?}");
    }
}
