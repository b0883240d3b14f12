//! A recount window, and the audit's counting, against counting by hand.

use std::time::Duration;

use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::Set;
use tally_core::counter::{Counter, ShardTally, Window};
use tally_core::ids::{RowKey, Shard, UserId};
use tally_core::recount::{CaptureLimits, Captures, Form, Marker, Report, RowTally, RunId, exact_rows, verdict};
use tally_core::tally::{Record, RecordKind};
use tally_core::time::UnixMillis;

use super::cases;

const USERS: usize = 5;

/// What happens to one row key, in order.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Toggle(usize),
    /// The recount's read passes this user.
    Read(usize),
}

/// Some toggles, a window with a toggle or none between any two reads, some toggles.
fn window() -> impl Strategy<Value = [Vec<Happening>; 3]> {
    let toggles = || proptest::collection::vec((0..USERS).prop_map(Happening::Toggle), 0..6);
    let inside = proptest::collection::vec(toggles(), USERS + 1).prop_map(|toggles| {
        let reads = (0..USERS).map(|user| Some(Happening::Read(user))).chain([None]);
        toggles.into_iter().zip(reads).flat_map(|(toggles, read)| toggles.into_iter().chain(read)).collect()
    });
    (toggles(), inside, toggles()).prop_map(|(before, inside, after)| [before, inside, after])
}

/// Row keys in the order a scan meets them, and how many rows each has.
fn scan() -> impl Strategy<Value = Vec<(RowKey, u64)>> {
    let post = select(vec!["a", "b", "a#0"]).prop_map(|post| post.parse().unwrap());
    let key = (post, 0..4u16).prop_map(|(post, k)| RowKey { post, shard: Shard::new(k).unwrap() });
    let keys = proptest::collection::btree_map(key, 1..5u64, 0..12);
    keys.prop_map(|keys| keys.into_iter().collect::<Vec<_>>()).prop_shuffle()
}

struct Played {
    read: Set<UserId>,
    report: Report,
    rows_at_close: i64,
    rows_at_end: i64,
}

fn key() -> RowKey {
    "p#0".parse().unwrap()
}

fn play(parts: [Vec<Happening>; 3]) -> Played {
    let run = RunId::from(7);
    let mut captures = Captures::new(CaptureLimits { users: USERS, age: Duration::MAX });
    let mut rows = [false; USERS];
    let mut read = Set::default();
    let (mut report, mut at_close) = (None, 0);
    let user = |user: usize| UserId::new(&user.to_string()).unwrap();
    let record = |kind| Record { sequence: 1.into(), written: UnixMillis(0), kind };
    let count = |rows: [bool; USERS]| i64::try_from(rows.into_iter().filter(|row| *row).count()).unwrap();
    for (marker, part) in [None, Some(Marker::low(run)), Some(Marker::high(run))].into_iter().zip(parts) {
        if let Some(marker) = marker {
            report = captures.observe(&record(RecordKind::Marker { key: key(), marker }), Duration::ZERO);
            at_close = count(rows);
        }
        for happening in part {
            match happening {
                Happening::Toggle(who) => {
                    rows[who] = !rows[who];
                    let kind = RecordKind::Row { key: key(), user: user(who), before: !rows[who], after: rows[who] };
                    captures.observe(&record(kind), Duration::ZERO);
                }
                Happening::Read(who) if rows[who] => {
                    read.insert(user(who));
                }
                Happening::Read(_) => {}
            }
        }
    }
    Played { read, report: report.unwrap(), rows_at_close: at_close, rows_at_end: count(rows) }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_window_counts_the_rows_at_its_closing_marker(parts in window()) {
        let played = play(parts);
        prop_assert_eq!(exact_rows(&played.read, &played.report), u64::try_from(played.rows_at_close).unwrap());
    }

    #[test]
    fn a_correction_removes_any_drift_whatever_was_counted_since(parts in window(), drift in -1000..1000i64, others in -9..9i64) {
        let played = play(parts);
        let window = Some(Window { run: played.report.run, rows: played.rows_at_close + drift });
        let tally = ShardTally { rows: played.rows_at_end + drift, window, ..ShardTally::default() };
        let counter = Counter { likes: tally.rows + others, shards: [(key().shard, tally)].into(), ..Counter::default() };
        let verdict = verdict(&played.read, &played.report, &counter, Form::Plain).unwrap();
        prop_assert_eq!(verdict.correction, -drift);
        prop_assert!(verdict.admitted_by(&counter));
        let corrected = verdict.apply(counter).unwrap();
        prop_assert_eq!(corrected.shards[&key().shard].rows, played.rows_at_end);
        prop_assert_eq!(corrected.likes, played.rows_at_end + others);
        prop_assert!(!verdict.admitted_by(&corrected), "a verdict is given once");
    }

    #[test]
    fn a_scan_counts_the_rows_of_each_key_it_meets(keys in scan()) {
        let mut tally = RowTally::default();
        let mut counted = Vec::new();
        for (key, rows) in &keys {
            for _ in 0..*rows {
                counted.extend(tally.push(key));
            }
        }
        counted.extend(tally.finish());
        let counted: Vec<_> = counted.into_iter().map(|count| (count.key, count.rows)).collect();
        prop_assert_eq!(counted, keys);
    }
}
