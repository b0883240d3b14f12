//! A recount window, and the audit's counting, against counting by hand.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::audit::{Horizon, ScanEffect, ScanInput, Scanner};
use tally_core::counter::{Counter, ShardTally, Window};
use tally_core::ids::{CounterId, MemberKey, PostId, RowKey, Shard, ShardCount};
use tally_core::ports::{Cursor, ScannedRow};
use tally_core::tally::{Record, RecordKind};
use tally_core::time::{Now, UnixMillis};
use tally_core::weight::{Stated, Weight};
use tally_core::window::{
    CaptureLimits, Captures, Form, Marker, Report, Roster, Verdict, WindowRun, exact_weight, judgement,
};

use super::cases;

const MEMBERS: usize = 5;

/// What happens to one row key, in order.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// The row of a member comes to weigh this much; 0 is a row that goes.
    Weigh(usize, i64),
    /// The recount's read passes this member.
    Read(usize),
}

/// Some changes, a window with some or none between any two reads, some changes.
fn window() -> impl Strategy<Value = [Vec<Happening>; 3]> {
    let weight = || select(vec![0, 0, 1, 1, 2, -3, 40, Weight::MAX]);
    let changes =
        move || proptest::collection::vec((0..MEMBERS, weight()).prop_map(|(who, n)| Happening::Weigh(who, n)), 0..6);
    let inside = proptest::collection::vec(changes(), MEMBERS + 1).prop_map(|changes| {
        let reads = (0..MEMBERS).map(|member| Some(Happening::Read(member))).chain([None]);
        changes.into_iter().zip(reads).flat_map(|(changes, read)| changes.into_iter().chain(read)).collect()
    });
    (changes(), inside, changes()).prop_map(|(before, inside, after)| [before, inside, after])
}

/// Row keys in the order a scan meets them, and what the rows of each weigh.
fn scan() -> impl Strategy<Value = Vec<(RowKey, Vec<i64>)>> {
    let post = select(vec!["a", "b", "a#0"]).prop_map(|post| CounterId::likes(PostId::new(post).unwrap()));
    let key = (post, 0..4u16).prop_map(|(counter, k)| RowKey { counter, shard: Shard::new(k).unwrap() });
    let weights = proptest::collection::vec(select(vec![1, 1, -2, Weight::MAX]), 1..5);
    let keys = proptest::collection::btree_map(key, weights, 0..12);
    keys.prop_map(|keys| keys.into_iter().collect::<Vec<_>>()).prop_shuffle()
}

struct Played {
    read: Roster,
    report: Report,
    weight_at_close: i64,
    weight_at_end: i64,
}

fn key() -> RowKey {
    "p#0".parse().unwrap()
}

fn play(parts: [Vec<Happening>; 3]) -> Played {
    let run = WindowRun::from(7);
    let mut captures = Captures::new(CaptureLimits { members: MEMBERS, age: Duration::MAX });
    let mut rows = [Weight::ABSENT; MEMBERS];
    let mut read = Roster::new(|sort| sort.bytes().fold(0, |print, byte| print << 8 | u128::from(byte)));
    let (mut report, mut at_close) = (None, 0);
    let member = |member: usize| MemberKey::new(&member.to_string()).unwrap();
    let record = |kind| Record { sequence: 1.into(), written: UnixMillis(0), kind };
    let sum = |rows: [Weight; MEMBERS]| rows.into_iter().map(Weight::get).sum();
    for (marker, part) in [None, Some(Marker::low(run)), Some(Marker::high(run))].into_iter().zip(parts) {
        if let Some(marker) = marker {
            report = captures.observe(&record(RecordKind::Marker { key: key(), marker }), Duration::ZERO);
            at_close = sum(rows);
        }
        for happening in part {
            match happening {
                Happening::Weigh(who, n) => {
                    let before = std::mem::replace(&mut rows[who], Weight::new(n).unwrap());
                    let kind = RecordKind::Row {
                        key: key(),
                        member: member(who),
                        before,
                        after: rows[who],
                        span: None,
                        regions: None,
                    };
                    captures.observe(&record(kind), Duration::ZERO);
                }
                Happening::Read(who) => {
                    read.extend(&[(member(who), rows[who])]);
                }
            }
        }
    }
    read.seal();
    Played { read, report: report.unwrap(), weight_at_close: at_close, weight_at_end: sum(rows) }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_window_weighs_the_rows_at_its_closing_marker(parts in window()) {
        let played = play(parts);
        prop_assert_eq!(exact_weight(&played.read, &played.report.touched), i128::from(played.weight_at_close));
    }

    #[test]
    fn a_correction_removes_any_drift_whatever_was_counted_since(parts in window(), drift in -1000..1000i64, others in -9..9i64) {
        let played = play(parts);
        let window = Some(Window { run: played.report.run, rows: played.weight_at_close + drift });
        let tally = ShardTally { rows: played.weight_at_end + drift, window, ..ShardTally::default() };
        let counter = Counter { likes: tally.rows + others, shards: [(key().shard, tally)].into(), ..Counter::default() };
        let (run, exact) = (played.report.run, exact_weight(&played.read, &played.report.touched));
        let judgement = judgement(run, exact, counter.shards.get(&key().shard), Form::Plain).unwrap();
        let verdict = Verdict { key: key(), run, correction: judgement.correction(), form: Form::Plain };
        prop_assert_eq!(verdict.correction, -drift);
        prop_assert!(verdict.admitted_by(&counter));
        let corrected = verdict.apply(counter).unwrap();
        prop_assert_eq!(corrected.shards[&key().shard].rows, played.weight_at_end);
        prop_assert_eq!(corrected.likes, played.weight_at_end + others);
        prop_assert!(!verdict.admitted_by(&corrected), "a verdict is given once");
    }

    #[test]
    fn a_scan_weighs_the_rows_of_each_key_it_meets_wherever_its_pages_end(keys in scan(), size in 1..7usize) {
        let rows: Vec<ScannedRow> = keys.iter().flat_map(|(key, weights)| rows(key, weights)).collect();
        let (mut pages, mut scanner, mut effects) = (rows.chunks(size), Scanner::new(shards(), None), Vec::new());
        let (mut weighed, mut input) = (Vec::new(), Some(ScanInput::Begin));
        while let Some(told) = input.take() {
            scanner.step(Now::default(), told, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    ScanEffect::ReadHorizon => input = Some(ScanInput::Horizon(Arc::new(Horizon::default()))),
                    ScanEffect::ReadPage(_) => {
                        let page = pages.next().map(<[_]>::to_vec).unwrap_or_default();
                        let next = (pages.len() > 0).then(|| Cursor(pages.len().to_string()));
                        input = Some(ScanInput::Page(page, next));
                    }
                    ScanEffect::Compare(batch) => {
                        weighed.extend(batch.keys.into_iter().map(|weighed| (weighed.key, weighed.rows, weighed.weight)));
                    }
                    ScanEffect::Misplaced(_) | ScanEffect::Doubtful(_) | ScanEffect::End => {}
                }
            }
        }
        let sums = keys.into_iter().map(|(key, n)| (key, n.len() as u64, n.into_iter().map(i128::from).sum()));
        prop_assert_eq!(weighed, sums.collect::<Vec<(RowKey, u64, i128)>>());
    }
}

fn shards() -> ShardCount {
    ShardCount::new(4).unwrap()
}

/// Rows of `key` that weigh so much.
fn rows(key: &RowKey, weights: &[i64]) -> Vec<ScannedRow> {
    let row = |(at, n): (usize, &i64)| ScannedRow {
        pk: key.to_string(),
        sort: format!("u-{at}"),
        stated: Stated::Amount(Weight::new(*n).unwrap()),
    };
    weights.iter().enumerate().map(row).collect()
}
