use tally_core::ids::{CounterName, PostId};

use crate::simulation::events::Record;
use crate::simulation::fold::*;

const DAY: Duration = Duration::from_secs(24 * 3_600);
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

fn counter(name: &str, kind: CounterKind) -> CounterId {
    CounterId { post: PostId::new("p").expect("an id"), name: CounterName::new(name, kind).expect("a name") }
}

fn likes() -> CounterId {
    counter("retweets", CounterKind::Set)
}

fn views() -> CounterId {
    counter("views", CounterKind::Sum)
}

fn member() -> Member {
    (likes(), UserId::new("u").expect("an id"))
}

/// A like, an unlike and a like of one user, and views of 1, 2 and 4, the first of which came before its definition.
fn events() -> Events {
    let member = |present| Effect::Member { counter: likes(), member: member().1, present };
    let record = |effect, early| Record { effect: Some(effect), early, at: NOW };
    let likes = [true, false, true].map(|present| record(member(present), false));
    let views = [1, 2, 4].map(|n| record(Effect::Amount { counter: views(), n }, n == 1));
    Events { said: [(0, likes.into_iter().chain(views).collect())].into() }
}

fn fold() -> Fold {
    Fold::new(1, ShardCount::new(1).expect("a power of two"), DAY)
}

fn gone() -> Option<u64> {
    Some(NOW.plus(DAY).0 / 1_000)
}

fn put(fold: &mut Fold, offset: u64, gone: Option<u64>) -> bool {
    fold.put(&events(), NOW, member(), (version(true, offset), gone)).is_ok()
}

fn claim(safe: u64, greatest: u64) -> Claim {
    Claim { n: 1, safe, greatest, safe_at: None, at: NOW, is_replaying: safe < greatest }
}

#[test]
fn a_row_is_the_event_of_its_version_and_never_goes_back() {
    for (offset, gone, holds) in
        [(0, None, true), (1, gone(), true), (1, None, false), (0, gone(), false), (9, None, false)]
    {
        assert_eq!(put(&mut fold(), offset, gone), holds, "{offset} {gone:?}");
    }
    let mut fold = fold();
    assert!(put(&mut fold, 1, gone()) && !put(&mut fold, 0, None), "an older one takes its place");
    assert!(put(&mut fold, 2, None) && fold.stands(&events()).is_ok());
}

#[test]
fn a_misrouted_event_that_is_read_again_alone_may_replace_a_routed_one_that_was_forgotten() {
    let home = partition_of(likes().post.as_bytes(), 2);
    let record = |present| {
        let effect = Effect::Member { counter: likes(), member: member().1, present };
        Record { effect: Some(effect), early: false, at: NOW }
    };
    let events = Events { said: [(home, vec![record(false)]), (1 - home, vec![record(true)])].into() };
    for (is_home_replayed, holds) in [(false, true), (true, false)] {
        let mut fold = Fold::new(2, ShardCount::new(1).expect("a power of two"), DAY);
        let put = |fold: &mut Fold, is_routed, gone| {
            fold.put(&events, NOW, member(), (version(is_routed, 0), gone)).expect("a lawful row");
        };
        put(&mut fold, false, None);
        put(&mut fold, true, gone());
        fold.rows.get_mut(&member()).expect("a row").now = None;
        let replays = |is_replaying| Claim { greatest: 1, is_replaying, ..Claim::default() };
        fold.claims = BTreeMap::from([(1 - home, replays(true)), (home, replays(is_home_replayed))]);
        fold.replays = BTreeSet::from([1 - home]);
        fold.finished = BTreeMap::from([(0, 1), (1, 1)]);
        put(&mut fold, false, None);
        fold.claims.values_mut().for_each(|claim| claim.is_replaying = false);
        assert_eq!(fold.stands(&events).is_ok(), holds);
    }
}

#[test]
fn a_tombstone_stays_until_it_expires() {
    assert!(!put(&mut fold(), 1, Some(NOW.0 / 1_000 + 3_600)), "it is kept for an hour of a day");
    let mut fold = fold();
    assert!(put(&mut fold, 1, gone()));
    let deleted = |fold: &mut Fold, at: UnixMillis, gone| fold.deleted(at, &member(), (version(true, 1), gone)).is_ok();
    assert!(!deleted(&mut fold, NOW, gone()) && !deleted(&mut fold, NOW.plus(DAY), None));
    assert!(deleted(&mut fold, NOW.plus(DAY), gone()));
    assert!(fold.stands(&events()).is_ok());
}

#[test]
fn a_removed_member_comes_back_only_during_a_replay() {
    let expired = || {
        let mut fold = fold();
        assert!(put(&mut fold, 0, None) && put(&mut fold, 1, gone()));
        fold.deleted(NOW.plus(DAY), &member(), (version(true, 1), gone())).expect("it has expired");
        fold.claims.insert(0, claim(2, 2));
        fold
    };
    assert!(!put(&mut expired(), 0, None));
    let mut fold = expired();
    fold.claims.insert(0, claim(0, 2));
    assert!(!put(&mut fold, 0, None), "nothing says that it is replayed");
    fold.replays.insert(0);
    assert!(put(&mut fold, 0, None) && fold.stands(&events()).is_ok());
    fold.claims.insert(0, claim(2, 2));
    assert!(fold.stands(&events()).is_err(), "the replay has passed, and the member is still there");
}

#[test]
fn a_claim_states_only_what_is_done() {
    let mut fold = fold();
    assert!(fold.claim(&events(), 0, (None, Some(claim(1, 1)))).is_err(), "a like is no row");
    assert!(put(&mut fold, 2, None));
    fold.claim(&events(), 0, (None, Some(claim(4, 4))))
        .expect("the last event of the row is in, and a view may be a letter");
    assert!(fold.claim(&events(), 0, (Some(claim(4, 4)), Some(claim(5, 5)))).is_err(), "a view is in no cell");
    let back = Claim { at: NOW.plus(DAY), ..claim(3, 4) };
    assert!(fold.claim(&events(), 0, (Some(claim(4, 4)), Some(back))).is_err(), "its owner goes back");
    let late = Claim { safe_at: Some(NOW.plus(DAY)), ..claim(4, 4) };
    assert!(fold.claim(&events(), 0, (Some(claim(4, 4)), Some(late))).is_err(), "a view of before waits");
}

#[test]
fn a_cell_adds_each_event_once_and_skips_only_the_first_ones_before_their_definition() {
    let add = |steps: &[(u64, i64)]| {
        let mut fold = fold();
        let mut step = |(to, n): (u64, i64)| {
            let cell = Cell { n, to: version(true, to) };
            fold.add(&events(), (views(), 0), cell).is_ok()
        };
        let holds = steps.iter().all(|it| step(*it));
        (holds, fold.counted.len())
    };
    assert_eq!(add(&[(3, 1), (5, 7)]), (true, 1));
    assert_eq!(add(&[(5, 6)]), (true, 0), "the first one was put aside");
    for steps in [&[(5, 7), (5, 13)][..], &[(5, 5)], &[(4, 3), (5, 3)], &[(2, 0)], &[(5, 7), (4, 7)]] {
        assert!(!add(steps).0, "{steps:?}");
    }
}

#[test]
fn counters_equal_the_last_events() {
    let mut fold = fold();
    assert!(put(&mut fold, 1, gone()));
    assert!(fold.totals(&events()).is_err(), "the like again is no row");
    assert!(put(&mut fold, 2, None));
    fold.add(&events(), (views(), 0), Cell { n: 6, to: version(true, 5) }).expect("all that was defined");
    assert_eq!(fold.totals(&events()).expect("all is done"), BTreeMap::from([(likes(), 1), (views(), 6)]));
    let [required, lawful] = fold.letters(&events());
    assert_eq!((required.clone(), lawful), (BTreeSet::from([(0, 3)]), required), "the view that was put aside");
}
