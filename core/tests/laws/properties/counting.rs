//! What a row adds, what a counter contains once it has it, and what an update may prune or take over.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::counter::{Counter, Retry, after_refusal, contains};
use tally_core::ids::{CounterId, MemberKey, Ordinal, PostId, RowKey, Shard, StreamShardId};
use tally_core::lineage::{Checkpoint, Lineage};
use tally_core::milestone::Terms;
use tally_core::tally::{CounterRecords, CutRules, Fold, Record, RecordKind, UpdateContext};
use tally_core::time::{Now, UnixMillis};
use tally_core::watermark::Prune;
use tally_core::weight::Weight;

use super::cases;

/// One row's changes: it comes, weighs something else, goes and is put again.
#[derive(Clone, Copy, Debug)]
struct Touched {
    post: u8,
    shard: u16,
    user: u8,
    weight: Weight,
}

fn history() -> impl Strategy<Value = Vec<Touched>> {
    let weight = select(vec![0, 0, 0, 1, 1, 1, 2, -7, 1_000]).prop_map(|n| Weight::new(n).unwrap());
    let touched =
        (0..3u8, 0..3u16, 0..3u8, weight).prop_map(|(post, shard, user, weight)| Touched { post, shard, user, weight });
    proptest::collection::vec(touched, 1..40)
}

type RowOf = (u8, u16, u8);

/// The change records of a history, as the table would emit them, and the rows at its end.
fn records(history: &[Touched]) -> (Vec<Record>, BTreeMap<RowOf, Weight>) {
    let mut rows = BTreeMap::new();
    let record = |(at, touched): (usize, &Touched)| {
        let Touched { post, shard, user, weight: after } = *touched;
        let before = rows.insert((post, shard, user), after).unwrap_or_default();
        let key = RowKey {
            counter: CounterId::likes(PostId::new(&post.to_string()).unwrap()),
            shard: Shard::new(shard).unwrap(),
        };
        let member = MemberKey::new(&user.to_string()).unwrap();
        let kind = RecordKind::Row { key, member, before, after, span: None, regions: None };
        Record { sequence: (at as u64 + 1).into(), written: UnixMillis(0), kind }
    };
    let records = history.iter().enumerate().map(record).collect();
    (records, rows)
}

const NOW: Now = Now { at: Duration::ZERO, wall: UnixMillis(0) };

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn the_deltas_of_a_row_add_up_to_what_it_became(history in history()) {
        let (records, rows) = records(&history);
        let mut sums: BTreeMap<RowOf, i64> = BTreeMap::new();
        for (record, touched) in records.iter().zip(&history) {
            let sum = sums.entry((touched.post, touched.shard, touched.user)).or_default();
            *sum += record.delta();
            prop_assert_eq!(*sum, touched.weight.get());
        }
        for (row, sum) in sums {
            prop_assert_eq!(sum, rows[&row].get());
        }
    }

    #[test]
    fn a_watermark_and_a_floor_never_move_back_and_what_is_contained_stays(
        updates in proptest::collection::vec((1..5u64, 1..9u64, 0..4u64, any::<bool>()), 1..40),
    ) {
        // A stream shard's updates come with any first record; shards below the greatest seen close one by one.
        let mut counter = Counter::default();
        let mut closed = 0;
        for (shard, first, length, close) in updates {
            let seen = counter.watermarks.clone();
            let closed_through = (closed > 0).then_some(Ordinal(closed));
            let records = one_post(first, first + length);
            let context =
                UpdateContext { shard: Ordinal(shard), now: UnixMillis(0), ancestors: &[], closed_through, seen: Some(&seen), terms: Terms::default() };
            let update = records.update(&context).unwrap();
            if counter.refusal(&update).is_some() {
                continue;
            }
            let after = counter.clone().updated(&update).unwrap();
            prop_assert!(after.watermarks.floor() >= counter.watermarks.floor());
            prop_assert!(after.version == counter.version + 1);
            for shard in (1..5).map(Ordinal) {
                for at in 1..13u64 {
                    prop_assert!(!contains(&counter, shard, at.into()) || contains(&after, shard, at.into()));
                }
                if let Some(mark) = counter.watermarks.marks().get(&shard) {
                    let now = after.watermarks.marks().get(&shard);
                    let pruned = after.watermarks.floor() >= Some(shard);
                    prop_assert!(now.map_or(pruned, |now| now >= mark));
                }
            }
            prop_assert!(after.refusal(&update).is_some(), "an update is taken once");
            counter = after;
            closed += u64::from(close && closed < 4);
        }
    }

    #[test]
    fn a_prune_never_lowers_the_floor_nor_takes_the_updating_shards_mark(
        marks in proptest::collection::btree_map((1..9u64).prop_map(Ordinal), (1..9u64).prop_map(Into::into), 0..6),
        floor in proptest::option::of((1..9u64).prop_map(Ordinal)),
        through in proptest::option::of((1..9u64).prop_map(Ordinal)),
        updating in (1..9u64).prop_map(Ordinal),
    ) {
        let watermarks = tally_core::watermark::Watermarks::new(marks, floor);
        if let Some(Prune { floor: to, finished }) = watermarks.prunable(through, updating) {
            prop_assert!(Some(to) == through && to < updating && Some(to) >= floor);
            prop_assert!(finished.iter().all(|shard| *shard <= to));
        }
    }

    #[test]
    fn a_closed_ancestor_at_any_distance_hands_its_row_key_over(distance in 1..6u64, listed in 0..3usize) {
        let lineage = chain(distance);
        let ancestors = lineage.closed_ancestors(&name(distance + 1), listed);
        let send = |counter: &Counter, shard: Ordinal, ancestors: &[Ordinal]| {
            let context = UpdateContext { shard, now: UnixMillis(0), ancestors, closed_through: None, seen: None, terms: Terms::default() };
            let mut update = one_post(1, 1).update(&context).unwrap();
            if counter.refusal(&update).is_some() {
                let Retry::Changed(changed) = after_refusal(&update, Some(counter), &lineage) else { panic!() };
                update = changed;
            }
            counter.clone().updated(&update).unwrap()
        };
        let parent = send(&Counter::default(), Ordinal(1), &[]);
        let child = send(&parent, Ordinal(distance + 1), &ancestors);
        prop_assert!(child.is_sound());
        prop_assert_eq!(child.likes, 2);
        let stranger = send(&parent, Ordinal(99), &[]);
        prop_assert!(!stranger.is_sound());
    }
}

fn name(shard: u64) -> StreamShardId {
    format!("shard-{shard}").as_str().into()
}

/// Shards that continue each other, all but the last closed.
fn chain(distance: u64) -> Lineage {
    let checkpoint = |shard: u64| Checkpoint {
        id: name(shard),
        parent: (shard > 1).then(|| name(shard - 1)),
        ordinal: Ordinal(shard),
        sequence: None,
        closed: shard <= distance,
        at: UnixMillis(0),
    };
    Lineage::new((1..=distance + 1).map(checkpoint), [], None)
}

/// Likes at the positions `first` to `last`, of one row key.
fn one_post(first: u64, last: u64) -> CounterRecords {
    let mut fold = Fold::new(CutRules { records: usize::MAX, age: Duration::MAX });
    for at in first..=last {
        let kind = RecordKind::Row {
            key: "p#0".parse().unwrap(),
            member: MemberKey::new("u").unwrap(),
            before: Weight::ABSENT,
            after: Weight::ONE,
            span: None,
            regions: None,
        };
        fold.push(&Record { sequence: at.into(), written: UnixMillis(0), kind }, NOW).unwrap();
    }
    fold.take().counters.remove(&CounterId::likes("p".parse().unwrap())).unwrap()
}
