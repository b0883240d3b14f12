//! Under which home a row is written: what is asked before it, and when it is asked again.

use super::*;
use crate::homes::{CounterMap, DecidedBy, Homes};
use crate::ids::{CounterId, ShardCount};

/// A member in another row key under each number of shards from 16 to 64.
const MEMBER: &str = "u-2";

fn count(n: u64) -> ShardCount {
    ShardCount::new(n).unwrap()
}

fn likes() -> CounterId {
    CounterId::likes(PostId::new("p").unwrap())
}

fn map(homes: &[u64], newest: u64, at: u64) -> CounterMap {
    let homes = homes.iter().map(|home| count(*home)).collect::<Homes>();
    CounterMap::new(homes, count(newest), None, DecidedBy::Heat, UnixMillis(at)).unwrap()
}

fn maps(map: Option<CounterMap>) -> Input {
    Input::Maps(Lane::FIRST, Ok(vec![(likes(), map)]))
}

fn located(home: Option<u64>) -> Input {
    Input::Located(Lane::FIRST, Ok(vec![home.map(count)]))
}

/// One whose deployment has announced changes of maps, and that has read one record.
fn due() -> Driven {
    let mut driven = Driven::assigned();
    driven.step(Input::Fence(Ok(Some(fence(0, 1).into()))));
    driven.step(Input::Log(Ok(log("id", 0, 50_000))));
    assert!(matches!(driven.asked(), Effect::ReadAnnounced), "{:?}", driven.effects);
    driven.step(Input::Announced(Ok(2)));
    driven.step(Input::Partitions(Ok(1)));
    driven.step(Input::Started(Ok(())));
    driven.reads_one(0);
    driven
}

impl Driven {
    fn reads_one(&mut self, offset: u64) {
        self.step(records(offset, &[MEMBER]));
        self.now += AGE;
        self.step(Input::Woke);
    }

    /// Under which home the one row of the transaction is that was asked for.
    #[track_caller]
    fn home(&self) -> Option<u16> {
        let transaction = self.transaction();
        let [Change::Member { home, .. }] = transaction.changes()[..] else { panic!("{transaction:?}") };
        home.map(ShardCount::get)
    }

    #[track_caller]
    fn asks_for_maps(&self) {
        assert!(
            matches!(self.asked(), Effect::ReadMaps { counters, .. } if *counters == [likes()]),
            "{:?}",
            self.effects
        );
    }

    #[track_caller]
    fn looks_under(&self, expected: &[u64]) {
        let Effect::Locate { sought, .. } = self.asked() else { panic!("{:?}", self.effects) };
        let homes: Vec<u64> = sought[0].homes.iter().map(|home| u64::from(home.get())).collect();
        assert_eq!((sought.len(), sought[0].member.as_str(), &homes[..]), (1, MEMBER, expected));
    }
}

#[test]
fn where_no_map_was_announced_none_is_asked_for() {
    let mut driven = Driven::reading(&fence(0, 1));
    driven.reads_one(0);
    assert_eq!(driven.home(), None);
}

#[test]
fn a_counter_without_a_map_is_asked_for_once() {
    let mut driven = due();
    driven.asks_for_maps();
    driven.step(maps(None));
    assert_eq!(driven.home(), None);
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    driven.reads_one(1);
    assert_eq!(driven.home(), None, "it is known by now");
}

#[test]
fn a_member_is_looked_for_and_written_where_it_stands_or_where_rows_are_put() {
    for (found, home) in [(Some(16), 16), (Some(32), 32), (None, 64)] {
        let mut driven = due();
        driven.step(maps(Some(map(&[16, 32, 64], 64, 1))));
        driven.looks_under(&[16, 32]);
        driven.step(located(found));
        assert_eq!(driven.home(), Some(home));
        driven.step(Input::Committed(Lane::FIRST, Commit::Done));
        driven.reads_one(1);
        driven.looks_under(&[16, 32]);
    }
}

#[test]
fn a_map_of_one_home_needs_no_look() {
    let mut driven = due();
    driven.step(maps(Some(map(&[64], 64, 1))));
    assert_eq!(driven.home(), Some(64));
}

#[test]
fn each_half_of_a_batch_is_looked_for_again() {
    let mut driven = due();
    driven.step(maps(Some(map(&[16, 64], 64, 1))));
    driven.step(located(None));
    driven.step(records(1, &["u-1", "a"]));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    driven.now += AGE;
    driven.step(Input::Woke);
    assert!(matches!(driven.asked(), Effect::Locate { .. }));
    driven.step(Input::Located(Lane::FIRST, Ok(vec![Some(count(16)), None])));
    driven.step(Input::Committed(Lane::FIRST, Commit::Invalid("too large".to_owned())));
    assert!(matches!(driven.asked(), Effect::Locate { .. }), "the first half");
    driven.step(Input::Located(Lane::FIRST, Ok(vec![None, None])));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    assert!(matches!(driven.asked(), Effect::Locate { .. }), "the second half");
}

#[test]
fn what_was_refused_for_now_is_sent_again_as_it_was_unless_maps_have_moved() {
    let throttled = || Commit::Cancelled(vec![Refused::Nothing, Refused::Throttled]);
    for moves in [false, true] {
        let mut driven = due();
        driven.step(maps(Some(map(&[16, 32], 32, 1))));
        driven.step(located(None));
        driven.step(Input::Committed(Lane::FIRST, throttled()));
        if moves {
            let asked = std::mem::take(&mut driven.effects);
            driven.step(Input::Moved(3));
            driven.effects = asked;
        }
        driven.waited();
        if moves {
            driven.asks_for_maps();
            driven.step(maps(Some(map(&[16, 32, 64], 64, 2))));
            driven.looks_under(&[16, 32]);
            driven.step(located(None));
        }
        assert_eq!(driven.home(), Some(if moves { 64 } else { 32 }));
    }
}

#[test]
fn maps_are_dropped_when_a_change_is_announced_and_an_older_number_changes_nothing() {
    let mut driven = due();
    driven.step(maps(None));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    driven.step(Input::Moved(1));
    driven.step(Input::Moved(2));
    driven.reads_one(1);
    assert_eq!(driven.home(), None);
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    driven.step(Input::Moved(3));
    driven.reads_one(2);
    driven.asks_for_maps();
}

#[test]
fn a_map_that_was_read_before_another_change_was_announced_is_read_again() {
    let mut driven = due();
    driven.asks_for_maps();
    driven.step(Input::Moved(4));
    driven.step(maps(None));
    driven.asks_for_maps();
    driven.step(maps(Some(map(&[16, 64], 64, 2))));
    driven.looks_under(&[16]);
}

#[test]
fn what_cannot_be_read_for_now_is_asked_for_again() {
    let mut driven = due();
    for _ in 0..2 {
        driven.step(Input::Maps(Lane::FIRST, Err(busy())));
        driven.waited();
        driven.asks_for_maps();
    }
    driven.step(maps(Some(map(&[16, 64], 64, 1))));
    for _ in 0..2 {
        driven.step(Input::Located(Lane::FIRST, Err(busy())));
        driven.waited();
        driven.looks_under(&[16]);
    }
    driven.step(located(Some(16)));
    assert_eq!(driven.home(), Some(16));
    let mut driven = due();
    driven.step(Input::Maps(Lane::FIRST, Err(Fault::Fatal("no such table".to_owned()))));
    assert!(
        driven.effects.iter().any(|effect| matches!(effect, Effect::Note(Note::Halted { .. }))),
        "{:?}",
        driven.effects
    );
}

#[test]
fn a_reload_forgets_the_maps() {
    let mut driven = due();
    driven.step(maps(None));
    driven.step(Input::Committed(Lane::FIRST, Commit::Unknown("no answer".to_owned())));
    driven.waited();
    driven.step(Input::Fence(Ok(Some(fence(0, 1).into()))));
    driven.step(Input::Log(Ok(log("id", 0, 50_000))));
    driven.step(Input::Announced(Ok(2)));
    driven.step(Input::Partitions(Ok(1)));
    driven.step(Input::Started(Ok(())));
    driven.reads_one(0);
    driven.asks_for_maps();
}

#[test]
fn keys_that_are_throttled_ask_for_more_shards_and_a_whole_table_does_not() {
    for (posts, spreads) in [(1, true), (2, false)] {
        let mut driven = Driven::reading(&fence(0, 1));
        let (mut offset, mut asked) = (0, Vec::new());
        for _ in 0..120 {
            driven.now += Duration::from_millis(100);
            let mut said = Records::default();
            for (nth, user) in ["a", "b"].into_iter().enumerate() {
                let (post, user) = (PostId::new(&format!("p{}", nth % posts)).unwrap(), UserId::new(user).unwrap());
                for _ in 0..600 {
                    let value = LikeEvent::new(&post, &user, Action::Like, UnixMillis(5)).encode();
                    said.push(Offset(offset), UnixMillis(0), None, Some(&value), []);
                    offset += 1;
                }
            }
            driven.step(Input::Records(Ok(Arc::new(said))));
            asked.extend(driven.effects.iter().filter_map(|effect| match effect {
                Effect::Spread { counter, from, to } => Some((counter.post.to_string(), from.get(), to.get())),
                _ => None,
            }));
            driven.now += AGE;
            driven.step(Input::Woke);
            let rows = driven.transaction().changes().len();
            driven.step(Input::Committed(
                Lane::FIRST,
                Commit::Cancelled(
                    std::iter::once(Refused::Nothing).chain(std::iter::repeat_n(Refused::Throttled, rows)).collect(),
                ),
            ));
            driven.waited();
            driven.step(Input::Committed(Lane::FIRST, Commit::Done));
        }
        let expected = if spreads { vec![("p0".to_owned(), 16, 64)] } else { Vec::new() };
        assert_eq!(asked, expected);
    }
}
