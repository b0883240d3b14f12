//! Collapsing a batch is the same as applying its events one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::batch::{Batch, BatchLimits, Change, SealedBatch, Taken};
use tally_core::event::{Action, LikeEvent};
use tally_core::fence::Offset;
use tally_core::ids::{PostId, UserId};
use tally_core::time::UnixMillis;

use super::cases;

/// The rows: who likes what since when.
type Rows = BTreeMap<(String, String), u64>;

#[derive(Clone, Debug)]
struct Said {
    post: &'static str,
    user: &'static str,
    action: Action,
    at: u64,
}

fn said() -> impl Strategy<Value = Said> {
    let names = || select(vec!["a", "b", "a#b"]);
    let action = select(vec![Action::Like, Action::Unlike]);
    (names(), names(), action, any::<u16>()).prop_map(|(post, user, action, at)| Said {
        post,
        user,
        action,
        at: u64::from(at),
    })
}

fn apply(rows: &mut Rows, post: &str, user: &str, action: Action, at: u64) {
    let row = (post.to_owned(), user.to_owned());
    match action {
        Action::Like => rows.insert(row, at),
        Action::Unlike => rows.remove(&row),
    };
}

fn one_by_one(said: &[Said], mut rows: Rows) -> Rows {
    for said in said {
        apply(&mut rows, said.post, said.user, said.action, said.at);
    }
    rows
}

fn collapsed(events: &SealedBatch, mut rows: Rows) -> Rows {
    for change in events.changes() {
        let Change::Member { counter, user, present, at } = change else { panic!("nothing adds to a sum") };
        let action = if present { Action::Like } else { Action::Unlike };
        apply(&mut rows, &counter.post, user, action, at.0);
    }
    rows
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
    for (said, rejected) in said.iter().zip(rejected) {
        if *rejected {
            assert_eq!(batch.reject(offset, 1, Duration::ZERO), Taken::Taken);
            offset = offset.next();
        }
        let (post, user) = (PostId::new(said.post).unwrap(), UserId::new(said.user).unwrap());
        let event = LikeEvent::new(&post, &user, said.action, UnixMillis(said.at)).into();
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
        let rows = one_by_one(&said[..before.min(said.len())], Rows::new());
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
    }

    #[test]
    fn a_batch_sealed_anywhere_comes_to_the_same((said, _) in history(), cuts in proptest::collection::vec(any::<bool>(), 40)) {
        let limits = BatchLimits { rows: 3, bytes: usize::MAX, age: Duration::MAX };
        let mut batch = Batch::new(limits, Offset(0));
        let mut rows = Rows::new();
        let mut fence = Offset(0);
        for (offset, (event, cut)) in (0..).map(Offset).zip(said.iter().zip(cuts)) {
            let (post, user) = (PostId::new(event.post).unwrap(), UserId::new(event.user).unwrap());
            let like = LikeEvent::new(&post, &user, event.action, UnixMillis(event.at)).into();
            let taken = batch.accept(offset, &like, 1, Duration::ZERO);
            if cut || taken == Taken::Full {
                let events = batch.seal().unwrap();
                prop_assert_eq!(events.from(), fence);
                fence = events.to();
                rows = collapsed(&events, rows);
            }
            if taken == Taken::Full {
                prop_assert_eq!(batch.accept(offset, &like, 1, Duration::ZERO), Taken::Taken);
            }
        }
        rows = collapsed(&batch.seal().unwrap(), rows);
        prop_assert_eq!(rows, one_by_one(&said, Rows::new()));
    }
}
