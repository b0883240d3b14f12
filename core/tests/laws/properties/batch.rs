//! Collapsing a batch is the same as applying its events one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::batch::{Batch, BatchLimits, Change, SealedBatch, Taken};
use tally_core::definitions::{Definitions, Entry};
use tally_core::event::{Event, decode_value};
use tally_core::fence::Offset;
use tally_core::ids::CounterKind;
use tally_core::time::UnixMillis;

use super::cases;

/// Who is a member of what since when, and what each sum has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rows {
    members: BTreeMap<(String, String), u64>,
    /// A cell is there once something was added to it, also where that comes to 0.
    cells: BTreeMap<String, i64>,
}

#[derive(Clone, Debug)]
struct Said {
    post: &'static str,
    deed: Deed,
    at: u64,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Like { user: &'static str, present: bool },
    Reply { reply: &'static str, present: bool },
    Views(i64),
}

impl Said {
    /// As a producer writes it.
    fn value(&self) -> Vec<u8> {
        let un = |adds: bool| if adds { "" } else { "un" };
        let fields = match self.deed {
            Deed::Like { user, present } => format!(r#""user_id":"{user}","action":"{}like""#, un(present)),
            Deed::Reply { reply, present } => format!(r#""reply_id":"{reply}","action":"{}reply""#, un(present)),
            Deed::Views(n) => format!(r#""n":{},"action":"{}view""#, n.unsigned_abs(), un(n > 0)),
        };
        format!(r#"{{"post_id":"{}","ts":{},{fields}}}"#, self.post, self.at).into_bytes()
    }

    fn apply(&self, rows: &mut Rows) {
        let (counter, member, present) = match self.deed {
            Deed::Like { user, present } => ("likes", user, present),
            Deed::Reply { reply, present } => ("replies", reply, present),
            Deed::Views(n) => {
                *rows.cells.entry(self.post.to_owned()).or_default() += n;
                return;
            }
        };
        let row = (format!("{} {counter}", self.post), member.to_owned());
        if present {
            rows.members.insert(row, self.at)
        } else {
            rows.members.remove(&row)
        };
    }
}

fn definitions() -> Definitions {
    let entries: Vec<Entry> = serde_json::from_str(include_str!("../../vectors/counters.json")).unwrap();
    Definitions::new(&entries).unwrap()
}

fn event<'a>(value: &'a [u8], definitions: &Definitions) -> Event<'a> {
    decode_value(Some(value), UnixMillis(0), definitions).unwrap()
}

fn said() -> impl Strategy<Value = Said> {
    let names = || select(vec!["a", "b", "a#b"]);
    let deed = proptest::prop_oneof![
        2 => (names(), any::<bool>()).prop_map(|(user, present)| Deed::Like { user, present }),
        1 => (names(), any::<bool>()).prop_map(|(reply, present)| Deed::Reply { reply, present }),
        2 => select(vec![1, -1, 2, -3, 1_000_000, -1_000_000]).prop_map(Deed::Views),
    ];
    (names(), deed, any::<u16>()).prop_map(|(post, deed, at)| Said { post, deed, at: u64::from(at) })
}

fn one_by_one<'a>(said: impl IntoIterator<Item = &'a Said>, mut rows: Rows) -> Rows {
    said.into_iter().for_each(|said| said.apply(&mut rows));
    rows
}

fn written(changes: &[Change<'_>], mut rows: Rows) -> Rows {
    for change in changes {
        let post = change.counter().post.to_string();
        match change {
            Change::Member { counter, user, present, at, .. } => {
                let row = (format!("{post} {}", counter.name), user.to_string());
                if *present {
                    rows.members.insert(row, at.0)
                } else {
                    rows.members.remove(&row)
                };
            }
            Change::Cell { add, .. } => *rows.cells.entry(post).or_default() += add,
        }
    }
    rows
}

fn collapsed(events: &SealedBatch, rows: Rows) -> Rows {
    let changes = events.changes();
    for change in &changes {
        if let Change::Cell { from, .. } = change {
            assert_eq!(*from, events.from(), "a cell gains all of its batch");
        }
    }
    written(&changes, rows)
}

fn halved(events: &SealedBatch, rows: Rows) -> Rows {
    match events.halves() {
        Some((first, second)) => halved(&second, halved(&first, rows)),
        None => collapsed(events, rows),
    }
}

/// A batch of `said`, with holes in the offsets where `rejected` says that a record was none.
fn batch(said: &[Said], rejected: &[bool]) -> Batch {
    let limits = BatchLimits { rows: BatchLimits::MAX_ROWS, bytes: usize::MAX, age: Duration::MAX };
    let mut batch = Batch::new(limits, Offset(0));
    let mut offset = Offset(0);
    let definitions = definitions();
    for (said, rejected) in said.iter().zip(rejected) {
        if *rejected {
            assert_eq!(batch.reject(offset, 1, Duration::ZERO), Taken::Taken);
            offset = offset.next();
        }
        let value = said.value();
        let event = event(&value, &definitions);
        assert_eq!(batch.accept(offset, &event, 1, Duration::ZERO), Taken::Taken);
        assert_eq!(batch.accept(offset, &event, 1, Duration::ZERO), Taken::Stale);
        offset = offset.next();
    }
    batch
}

fn history() -> impl Strategy<Value = (Vec<Said>, Vec<bool>)> {
    (1..40usize).prop_flat_map(|n| {
        let rejected = proptest::collection::vec(proptest::bool::weighted(0.1), n);
        (proptest::collection::vec(said(), n), rejected)
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn collapsing_is_applying_one_by_one((said, rejected) in history(), before in Just(4usize)) {
        let rows = one_by_one(&said[..before.min(said.len())], Rows::default());
        let mut batch = batch(&said, &rejected);
        let open: Vec<_> = batch.unacknowledged().collect();
        prop_assert_eq!(open.len(), rejected.iter().filter(|rejected| **rejected).count());
        for offset in open {
            prop_assert!(batch.clone().seal().is_none());
            batch.dead_letter_acknowledged(offset);
        }
        let events = batch.seal().unwrap();
        let expected = one_by_one(&said, rows.clone());
        prop_assert_eq!(events.len(), said.len());
        prop_assert_eq!(&collapsed(&events, rows.clone()), &expected);
        prop_assert_eq!(&halved(&events, rows), &expected);
        let keys: BTreeSet<_> = events.changes().iter().map(|change| (change.counter().clone(), change.user().cloned())).collect();
        prop_assert_eq!(keys.len(), events.changes().len(), "each row changes once");
        let cells: BTreeSet<_> = events.cells().cloned().collect();
        let sums = keys.into_iter().map(|(counter, _)| counter).filter(|counter| counter.name.kind() == CounterKind::Sum);
        prop_assert_eq!(cells, sums.collect::<BTreeSet<_>>(), "each sum changes, also by 0");
    }

    /// As below `redo`, where a cell may have any first part of a batch already.
    #[test]
    fn a_cell_gains_what_lies_at_and_behind_the_offset_it_has((said, _) in history(), has in 0..45u64) {
        let events = batch(&said, &vec![false; said.len()]).seal().unwrap();
        let changes = events.changes_behind(&[], |_| Offset(has));
        let is_left = |(offset, said): &(u64, &Said)| *offset >= has || !matches!(said.deed, Deed::Views(_));
        let left = (0..).zip(&said).filter(is_left).map(|(_, said)| said);
        prop_assert_eq!(written(&changes, Rows::default()), one_by_one(left, Rows::default()));
        let from = changes.iter().filter_map(|change| match change {
            Change::Cell { from, .. } => Some(*from),
            Change::Member { .. } => None,
        });
        prop_assert!(from.into_iter().all(|from| from == Offset(has)), "and its condition says so");
    }

    #[test]
    fn a_batch_sealed_anywhere_comes_to_the_same((said, _) in history(), cuts in proptest::collection::vec(any::<bool>(), 40)) {
        let limits = BatchLimits { rows: 3, bytes: usize::MAX, age: Duration::MAX };
        let mut batch = Batch::new(limits, Offset(0));
        let mut rows = Rows::default();
        let mut fence = Offset(0);
        let definitions = definitions();
        for (offset, (said, cut)) in (0..).map(Offset).zip(said.iter().zip(cuts)) {
            let value = said.value();
            let event = event(&value, &definitions);
            let taken = batch.accept(offset, &event, 1, Duration::ZERO);
            if cut || taken == Taken::Full {
                let events = batch.seal().unwrap();
                prop_assert_eq!(events.from(), fence);
                fence = events.to();
                rows = collapsed(&events, rows);
            }
            if taken == Taken::Full {
                prop_assert_eq!(batch.accept(offset, &event, 1, Duration::ZERO), Taken::Taken);
            }
        }
        rows = collapsed(&batch.seal().unwrap(), rows);
        prop_assert_eq!(rows, one_by_one(&said, Rows::default()));
    }
}
