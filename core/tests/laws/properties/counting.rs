//! What a row's change records add to its counter.

use std::collections::BTreeMap;

use proptest::prelude::{Strategy, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::changes::Side;
use tally_core::ids::{CounterId, MemberKey, PostId, RowKey, Shard};
use tally_core::tally::{Record, RecordKind};
use tally_core::time::UnixMillis;
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
        let [before, after] = [before, after].map(|weight| Side { weight: weight.get(), ..Side::default() });
        let kind = RecordKind::Row { key, member, before, after };
        Record { sequence: (at as u64 + 1).into(), written: UnixMillis(0), kind }
    };
    let records = history.iter().enumerate().map(record).collect();
    (records, rows)
}

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
}
