//! Tests that the comparison after a run finds each difference. The sample has one post of two with likes, retweets,
//! replies and views, and one hashtag with uses; then one of them is put wrong.

use tally_adapters::dynamodb::ScannedRow;
use tally_core::definitions::Direction;
use tally_core::ids::{ReservedKey, RowKey, ShardCount};
use tally_core::weight::{Stated, Weight};

use crate::counters::tests::all;
use crate::ledger::{Deed, Event};
use crate::verify::LISTED;
use crate::verify::compare::*;

const SHARDS: ShardCount = ShardCount::DEFAULT;

struct World {
    ledger: Ledger,
    rows: Rows,
    counters: BTreeMap<CounterId, Counter>,
}

impl World {
    fn differences(&self) -> Vec<String> {
        rows_with_ledger(&self.rows, &self.ledger, &all()).listed
    }

    fn id(&self, counted: Counted, subject: usize) -> CounterId {
        all().id(counted, &self.ledger.names.subjects(counted)[subject]).unwrap()
    }

    fn say(&self, counted: Counted, subject: usize, deed: Deed) {
        self.ledger.acknowledged(Event { counted, subject, region: 0, deed });
    }

    /// A row, and its count.
    fn put(&mut self, id: &CounterId, sort: &str, amount: Option<i64>) {
        let key = match ReservedKey::read(sort) {
            Some(ReservedKey::Cell { partition, .. }) => RowKey::of_cell(id, partition, SHARDS),
            _ => RowKey::of(id, sort, SHARDS),
        };
        let stated = amount.map_or(Stated::Nothing, |n| Stated::Amount(Weight::new(n).unwrap()));
        let row = ScannedRow { pk: key.to_string(), sort: sort.to_owned(), stated, gone: None };
        self.rows.take(&row, &self.ledger.names, SHARDS);
        let counter = self.counters.entry(id.clone()).or_default();
        *counter.parts.entry(key.shard).or_default() += amount.unwrap_or(1);
        counter.likes += amount.unwrap_or(1);
    }
}

fn user(user: u32, direction: Direction) -> Deed {
    Deed::Member { member: Member::User(user), direction }
}

fn made(nth: u32, direction: Direction) -> Deed {
    Deed::Member { member: Member::Made { lane: 2, nth }, direction }
}

/// Every third of 30 users likes the first of two posts, every fifth retweets it, one has replied three times; a stranger
/// likes it. It has 60 views. Two posts use the first hashtag.
fn world() -> World {
    let ledger = Ledger::new(Names::new(2, 30, 1, None));
    let mut world = World { ledger, rows: Rows::default(), counters: BTreeMap::new() };
    let users = |step| (0..30).step_by(step).map(|index| user(index, Direction::Add)).collect::<Vec<_>>();
    let lane = |count| (0..count).map(|nth| made(nth, Direction::Add)).collect::<Vec<_>>();
    let sets = [Counted::Likes, Counted::Retweets, Counted::Replies, Counted::Uses];
    for (counted, deeds) in sets.into_iter().zip([users(3), users(5), lane(3), lane(2)]) {
        for deed in deeds {
            world.say(counted, 0, deed);
            let Deed::Member { member, .. } = deed else { unreachable!("all are members") };
            let (id, sort) = (world.id(counted, 0), world.ledger.names.member(counted, member));
            world.put(&id, sort.as_str(), None);
        }
    }
    world.put(&world.id(Counted::Likes, 0), "stranger", None);
    world.say(Counted::Views, 0, Deed::View { amount: 35 });
    world.say(Counted::Views, 0, Deed::View { amount: 25 });
    world.put(&world.id(Counted::Views, 0), "\u{1}cell/likes/7", Some(60));
    world
}

fn shown(value: i64) -> Shown {
    Shown { value, exact: true, fresh: true }
}

#[test]
fn what_agrees_has_no_differences_and_strangers_are_counted_too() {
    let world = world();
    assert_eq!(world.differences(), [""; 0]);
    assert_eq!(counters_with_rows(&world.counters, &world.rows).count, 0);
    let right = [(Counted::Likes, 0, 11), (Counted::Likes, 1, 0), (Counted::Views, 0, 60), (Counted::Retweets, 0, 6)];
    let served = right.map(|(counted, post, value)| (world.id(counted, post), shown(value))).into();
    assert_eq!(served_with_rows(&served, &[&world.rows]).count, 0);
}

#[test]
fn a_row_of_any_set_that_is_lost_or_was_never_said_is_found() {
    let mut world = world();
    world.say(Counted::Likes, 1, user(5, Direction::Add));
    world.say(Counted::Likes, 0, user(3, Direction::Remove));
    world.say(Counted::Retweets, 1, user(2, Direction::Add));
    world.say(Counted::Replies, 1, made(3, Direction::Add));
    world.say(Counted::Replies, 0, made(1, Direction::Remove));
    world.put(&world.id(Counted::Replies, 1), "reply-3-9", None);
    world.say(Counted::Uses, 1, made(7, Direction::Add));
    world.say(Counted::Uses, 0, made(0, Direction::Remove));
    let expected = [
        "user-4 of post-1: it was taken back or never said, and there is a row",
        "user-6 of post-2: it was said last, and there is no row",
        "user-3 of post-2 retweets: it was said last, and there is no row",
        "retweets in all: 7 were said and not taken back, there are 6 rows",
        "reply-3-2 of post-1 replies: it was taken back or never said, and there is a row",
        "reply-3-4 of post-2 replies: it was said last, and there is no row",
        "reply-3-9 of post-2 replies: it was taken back or never said, and there is a row",
        "replies in all: 3 were said and not taken back, there are 4 rows",
        "tagged-3-1 of coffee uses: it was taken back or never said, and there is a row",
        "tagged-3-8 of sunrise uses: it was said last, and there is no row",
    ];
    assert_eq!(world.differences(), expected);
    (0..30).for_each(|index| world.say(Counted::Likes, 1, user(index, Direction::Add)));
    let found = rows_with_ledger(&world.rows, &world.ledger, &all());
    assert_eq!((found.count, found.listed.len()), (40, LISTED), "long lists are cut");
}

#[test]
fn a_sum_off_by_one_is_found_and_an_open_view_may_count_or_not() {
    let mut world = world();
    let id = world.id(Counted::Views, 0);
    world.put(&id, "\u{1}cell/likes/8", Some(1));
    let expected = [
        "post-1 +views: 60 was acknowledged, the cells hold 61",
        "views in all: 60 was acknowledged, the cells hold 61",
    ];
    assert_eq!(world.differences(), expected);
    world.ledger.views.unknown(0, 2);
    assert_eq!(world.differences(), [""; 0]);
    world.put(&id, "\u{1}cell/likes/9", Some(2));
    assert_eq!(
        world.differences()[0],
        "post-1 +views: 60 was acknowledged and up to 2 more may count, the cells hold 63"
    );
}

#[test]
fn a_count_off_by_one_is_found_in_its_shard_in_the_total_and_in_the_answer() {
    let mut world = world();
    for counted in Counted::ALL {
        let id = world.id(counted, 0);
        let right = world.counters.clone();
        let counter = world.counters.get_mut(&id).unwrap();
        let total = counter.likes;
        counter.likes += 1;
        let found = counters_with_rows(&world.counters, &world.rows);
        assert_eq!(found.listed, [format!("{id}: the rows come to {total}, a total of {}", total + 1)]);
        let counter = world.counters.get_mut(&id).unwrap();
        *counter.parts.first_entry().unwrap().get_mut() += 1;
        assert_eq!(counters_with_rows(&world.counters, &world.rows).count, 2);
        world.counters.remove(&id);
        assert_eq!(counters_with_rows(&world.counters, &world.rows).count, 1 + right[&id].parts.len() as u64);
        world.counters = right;
    }
    let served = BTreeMap::from([(world.id(Counted::Likes, 0), shown(12)), (world.id(Counted::Views, 0), shown(35))]);
    let expected =
        ["post-1: the rows come to 11, the API answers 12", "post-1 +views: the rows come to 60, the API answers 35"];
    assert_eq!(served_with_rows(&served, &[&world.rows]).listed, expected);
}

#[test]
fn a_sum_of_regions_has_the_rows_of_each_and_is_exact_and_fresh() {
    let world = world();
    let found = |answer| {
        let served = BTreeMap::from([(world.id(Counted::Likes, 0), answer)]);
        served_with_rows(&served, &[&world.rows, &world.rows]).listed
    };
    assert_eq!(found(shown(22)), [""; 0]);
    assert_eq!(found(shown(11)), ["post-1: the rows come to 22, the API answers 11"]);
    let behind = found(Shown { fresh: false, ..shown(22) });
    assert_eq!(behind, ["post-1: the API answers 22, exact: true, fresh: false"]);
    assert_eq!(found(Shown { exact: false, ..shown(22) }).len(), 1);
}

#[test]
fn a_row_that_stands_where_it_should_not_is_astray_and_a_tombstone_is_no_row() {
    let shards = ShardCount::DEFAULT;
    let (home, five) = (shards.shard_of("u"), Stated::Amount(Weight::new(5).unwrap()));
    let elsewhere = (home.index() + 1) % shards.get();
    let cell = "\u{1}cell/likes/3";
    let names = Names::new(1, 1, 0, None);
    let taken = |pk: &str, sort: &str, stated, gone| {
        let mut rows = Rows::default();
        rows.take(&ScannedRow { pk: pk.to_owned(), sort: sort.to_owned(), stated, gone }, &names, shards);
        (rows.iter().count(), rows.astray.count)
    };
    for (pk, sort, stated, astray) in [
        (format!("p#{home}"), "u", Stated::Nothing, 0),
        (format!("p#retweets.{home}"), "u", Stated::Nothing, 0),
        ("p#+views.3".to_owned(), cell, five, 0),
        ("torn".to_owned(), "u", Stated::Nothing, 1),
        (format!("p#{elsewhere}"), "u", Stated::Nothing, 1),
        ("p#+views.4".to_owned(), cell, five, 1),
        (format!("p#+views.{home}"), "u", Stated::Nothing, 1),
        ("p#retweets.3".to_owned(), cell, five, 1),
        ("p#+views.3".to_owned(), cell, Stated::Unreadable, 1),
    ] {
        assert_eq!(taken(&pk, sort, stated, None).1, astray, "{pk} {sort:?}");
    }
    assert_eq!(taken(&format!("p#{home}"), "u", Stated::Amount(Weight::ABSENT), Some(7)), (0, 0));
}
