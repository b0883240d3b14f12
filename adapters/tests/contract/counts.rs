//! Counters, changed by conditional updates, corrected by verdicts, scanned.

pub(crate) mod milestones;

use std::collections::BTreeMap;

use tally_core::counter::{Counter, Feeder, Touch, Update};
use tally_core::ids::{CounterId, Ordinal, RowKey, Shard};
use tally_core::ports::{Applied, Counts, Judged, LedgerEntry, Mended, Segment};
use tally_core::tally::MAX_TOUCHED;
use tally_core::time::UnixMillis;
use tally_core::watermark::Prune;
use tally_core::window::{Form, Verdict, WindowRun};

use crate::engine::Env;
use crate::likes::post;

pub(crate) async fn contract(env: &Env) {
    let port = &*env.counts;
    an_update_is_taken_once(port).await;
    the_widest_update_is_taken(port).await;
    a_contest_needs_the_feeder_it_saw(port).await;
    a_finished_stream_shard_changes_nothing_any_more(port).await;
    counters_come_in_the_order_asked(port).await;
    a_scan_meets_every_counter_once(port).await;
    a_verdict_takes_its_token_and_leaves_a_line(env).await;
    a_count_in_doubt_is_marked_until_a_verdict_whose_rows_were_read_behind_the_last_mark(env).await;
    a_total_is_mended_once(env).await;
    milestones::contract(env).await;
}

pub(crate) fn shard(k: u16) -> Shard {
    Shard::new(k).unwrap()
}

pub(crate) fn touch(k: u16, delta: i64) -> Touch {
    Touch { shard: shard(k), delta, feeder: Feeder::Usual, window: None, doubt: false }
}

/// Records `first` to `last` of stream shard `g`.
pub(crate) fn update(g: u64, first: u64, last: u64, touched: Vec<Touch>) -> Update {
    Update {
        shard: Ordinal(g),
        first: first.into(),
        last: last.into(),
        at: UnixMillis(1000 + last),
        touched,
        ancestors: vec![],
        closed_through: None,
        prune: None,
        guard: None,
    }
}

pub(crate) async fn taken(port: &dyn Counts, post: &CounterId, update: &Update) -> Counter {
    match port.apply(post, update).await.unwrap() {
        Applied::Taken(counter) => counter,
        refused => panic!("{update:?}: {refused:?}"),
    }
}

async fn an_update_is_taken_once(port: &dyn Counts) {
    let post = post("once");
    assert_eq!(port.counter(&post).await, Ok(None));
    let first = update(1, 5, 9, vec![touch(0, 3), touch(3, -1)]);
    let counter = taken(port, &post, &first).await;
    assert_eq!((counter.likes, counter.version, counter.updated_at), (2, 1, UnixMillis(1009)));
    assert_eq!(counter.shards[&shard(3)].rows, -1);
    assert_eq!(port.counter(&post).await, Ok(Some(counter.clone())));
    for late in [first, update(1, 9, 12, vec![touch(0, 1)])] {
        assert_eq!(port.apply(&post, &late).await, Ok(Applied::Refused(Some(counter.clone()))));
    }
    let next = taken(port, &post, &update(1, 100_000_000_000, 100_000_000_001, vec![touch(0, 1)])).await;
    assert_eq!((next.likes, next.version), (3, 2), "sequences are compared as numbers, not as text");
}

async fn the_widest_update_is_taken(port: &dyn Counts) {
    let post = post("wide");
    let touched = |delta| (0..MAX_TOUCHED).map(|k| touch(u16::try_from(255 - k).unwrap(), delta)).collect::<Vec<_>>();
    for g in 1..=40 {
        let few = Update { closed_through: Some(Ordinal(g - 1)), ..update(g, 1, 1, vec![touch(0, 1)]) };
        taken(port, &post, &few).await;
    }
    let widest = Update {
        ancestors: (41..47).map(Ordinal).collect(),
        closed_through: Some(Ordinal(40)),
        prune: Some(Prune { floor: Ordinal(40), finished: (1..=40).map(Ordinal).collect() }),
        ..update(50, 1, 2, touched(1))
    };
    let counter = taken(port, &post, &widest).await;
    assert_eq!(counter.likes, 40 + i64::try_from(MAX_TOUCHED).unwrap());
    assert_eq!((counter.watermarks.marks().len(), counter.watermarks.floor()), (1, Some(Ordinal(40))));
    let contested =
        touched(1).into_iter().map(|touch| Touch { feeder: Feeder::Contest { from: Ordinal(50) }, ..touch });
    let counter = taken(port, &post, &update(51, 1, 2, contested.collect())).await;
    assert_eq!(counter.shards.values().filter(|tally| tally.suspect).count(), MAX_TOUCHED);
}

async fn a_contest_needs_the_feeder_it_saw(port: &dyn Counts) {
    let post = post("contested");
    let contest = |g, from, first| {
        let feeder = Feeder::Contest { from: Ordinal(from) };
        update(g, first, first, vec![Touch { feeder, ..touch(0, 1) }])
    };
    assert_eq!(port.apply(&post, &contest(2, 1, 1)).await, Ok(Applied::Refused(None)), "no counter, no opponent");
    taken(port, &post, &update(1, 1, 1, vec![touch(0, 1)])).await;
    assert!(matches!(port.apply(&post, &update(2, 1, 1, vec![touch(0, 1)])).await, Ok(Applied::Refused(Some(_)))));
    let counter = taken(port, &post, &contest(2, 1, 1)).await;
    let tally = &counter.shards[&shard(0)];
    assert_eq!((tally.rows, tally.switches, tally.suspect, tally.feeder), (2, 1, true, Some(Ordinal(2))));
    assert_eq!(port.apply(&post, &contest(3, 1, 1)).await, Ok(Applied::Refused(Some(counter))));
}

async fn a_finished_stream_shard_changes_nothing_any_more(port: &dyn Counts) {
    let post = post("pruned");
    taken(port, &post, &update(1, 1, 1, vec![touch(0, 1)])).await;
    let pruning = Update {
        closed_through: Some(Ordinal(1)),
        prune: Some(Prune { floor: Ordinal(1), finished: vec![Ordinal(1)] }),
        ..update(2, 1, 1, vec![touch(0, 1)])
    };
    let counter = taken(port, &post, &pruning).await;
    let refused = Ok(Applied::Refused(Some(counter)));
    assert_eq!(port.apply(&post, &update(1, 99, 99, vec![touch(1, 1)])).await, refused);
    let lower = Update {
        prune: Some(Prune { floor: Ordinal(0), finished: vec![] }),
        closed_through: Some(Ordinal(2)),
        ..update(3, 1, 1, vec![touch(0, 1)])
    };
    assert_eq!(port.apply(&post, &lower).await, refused, "a floor never moves back");
}

async fn counters_come_in_the_order_asked(port: &dyn Counts) {
    let posts: Vec<CounterId> = (0..130).map(|n| post(&format!("batch-{n}"))).collect();
    for (n, post) in posts.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
        taken(port, post, &update(1, 1, 1, vec![touch(0, i64::try_from(n).unwrap())])).await;
    }
    let mut asked: Vec<CounterId> = posts.iter().rev().cloned().collect();
    asked.push(posts[4].clone());
    let found = port.counters(&asked).await.unwrap();
    let found = found.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    let likes: Vec<Option<i64>> = found.iter().map(|counter| counter.as_ref().map(|counter| counter.likes)).collect();
    let expected = |n: usize| n.is_multiple_of(2).then(|| i64::try_from(n).unwrap());
    assert_eq!(likes, (0..130).rev().chain([4]).map(expected).collect::<Vec<_>>());
    assert_eq!(port.counters(&[]).await, Ok(vec![]));
}

async fn a_scan_meets_every_counter_once(port: &dyn Counts) {
    let mut met = BTreeMap::new();
    for index in 0..3 {
        let mut after = None;
        loop {
            let page = port.scan(Segment { index, of: 3 }, after.as_ref()).await.unwrap();
            for (post, counter) in page.items {
                assert_eq!(met.insert(post, counter.unwrap()), None, "met twice");
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    assert_eq!(met.keys().filter(|id| id.post.starts_with("batch-")).count(), 65);
    let post = post("once");
    assert_eq!(met.get(&post).cloned(), port.counter(&post).await.unwrap());
}

pub(crate) fn entry(post: &CounterId, run: WindowRun, at: u64) -> LedgerEntry {
    let (by, why) = ("tally-batch-recount".into(), "drift".into());
    LedgerEntry { counter: post.clone(), shard: Some(shard(2)), at: UnixMillis(at), run, by, before: 7, after: -2, why }
}

async fn a_verdict_takes_its_token_and_leaves_a_line(env: &Env) {
    let (port, post) = (&*env.counts, post("judged#1"));
    let run = WindowRun::from(5);
    let window = Touch { window: Some(run), ..touch(2, 0) };
    let verdict = |run, correction, form| Verdict {
        key: RowKey { counter: post.clone(), shard: shard(2) },
        run,
        correction,
        form,
    };
    let judge = async |verdict: &Verdict, at| port.judge(verdict, &entry(&post, verdict.run, at)).await.unwrap();
    assert_eq!(judge(&verdict(run, 1, Form::Plain), 10).await, Judged::Void, "no counter");

    taken(port, &post, &update(1, 1, 1, vec![touch(2, 7)])).await;
    taken(port, &post, &update(1, 2, 2, vec![window])).await;
    taken(port, &post, &update(1, 3, 3, vec![touch(2, 2)])).await;
    assert_eq!(judge(&verdict(WindowRun::from(6), 1, Form::Plain), 11).await, Judged::Void, "another run's token");
    assert_eq!(judge(&verdict(run, -9, Form::Suspect { switches: 1 }), 12).await, Judged::Void, "a switch not there");
    assert_eq!(env.recounts.ledger(&post, 9).await, Ok(vec![]), "void leaves no line");
    assert_eq!(judge(&verdict(run, -9, Form::Plain), 13).await, Judged::Stands);
    assert_eq!(judge(&verdict(run, -9, Form::Plain), 14).await, Judged::Void, "the token is taken");
    let counter = port.counter(&post).await.unwrap().unwrap();
    assert_eq!((counter.likes, counter.sum(), counter.version), (0, Ok(0), 4));
    assert_eq!(counter.shards[&shard(2)].window, None);

    let contest = Touch { feeder: Feeder::Contest { from: Ordinal(1) }, ..touch(2, 1) };
    taken(port, &post, &update(2, 1, 1, vec![contest])).await;
    taken(port, &post, &update(2, 2, 2, vec![window])).await;
    assert_eq!(judge(&verdict(run, 0, Form::Plain), 15).await, Judged::Void, "suspect");
    assert_eq!(judge(&verdict(run, 0, Form::Suspect { switches: 1 }), 16).await, Judged::Stands);
    let counter = port.counter(&post).await.unwrap().unwrap();
    assert!(counter.is_sound());

    let lines = [entry(&post, run, 16), entry(&post, run, 13)];
    assert_eq!(env.recounts.ledger(&post, 9).await, Ok(lines.to_vec()), "newest first");
    assert_eq!(env.recounts.ledger(&post, 1).await, Ok(lines[..1].to_vec()));
}

async fn a_count_in_doubt_is_marked_until_a_verdict_whose_rows_were_read_behind_the_last_mark(env: &Env) {
    let (port, post, now) = (&*env.counts, post("doubted"), UnixMillis(77));
    let key = RowKey { counter: post.clone(), shard: shard(2) };
    for _ in 0..2 {
        port.suspect(&key, now).await.unwrap();
    }
    let marked = port.counter(&post).await.unwrap().unwrap();
    assert_eq!((marked.likes, marked.version, marked.updated_at), (0, 2, now), "also where there was no counter");
    assert!(marked.shards[&shard(2)].suspect && !marked.is_sound());
    let run = WindowRun::from(9);
    let window = Touch { window: Some(run), ..touch(2, 0) };
    let counter = taken(port, &post, &update(1, 1, 1, vec![window])).await;
    assert!(counter.shards[&shard(2)].suspect, "an update takes no suspicion away");
    let verdict = |switches| Verdict { key: key.clone(), run, correction: 4, form: Form::Suspect { switches } };
    let voided = port.judge(&verdict(1), &entry(&post, run, 30)).await;
    assert_eq!(voided, Ok(Judged::Void), "marked again since the rows were read");
    assert_eq!(port.judge(&verdict(2), &entry(&post, run, 30)).await, Ok(Judged::Stands));
    let judged = port.counter(&post).await.unwrap().unwrap();
    assert!(judged.is_sound());
    assert_eq!((judged.likes, judged.version), (4, 4));
}

async fn a_total_is_mended_once(env: &Env) {
    let (port, post) = (&*env.counts, post("mended"));
    taken(port, &post, &update(1, 1, 1, vec![touch(0, 3)])).await;
    let entry = LedgerEntry { shard: None, why: "total".into(), ..entry(&post, 8.into(), 20) };
    assert_eq!(port.mend_total(&post, 2, 5, &entry).await, Ok(Mended::Changed));
    assert_eq!(port.mend_total(&post, 1, 5, &entry).await, Ok(Mended::Mended));
    assert_eq!(port.mend_total(&post, 1, 5, &entry).await, Ok(Mended::Changed), "the version moved");
    let counter = port.counter(&post).await.unwrap().unwrap();
    assert_eq!((counter.likes, counter.version, counter.sum()), (5, 2, Ok(3)));
    assert_eq!(env.recounts.ledger(&post, 9).await, Ok(vec![entry]));
}
