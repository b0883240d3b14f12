//! Tests, by example, of how producers choose partitions for the events of a sum: what each policy chooses, how a
//! counter's width (its number of partitions) follows its rate, and which partitions belong to a counter (its family).
//! `properties::spread` has the laws.

use std::collections::BTreeSet;

use super::*;
use crate::ids::{CounterKind, CounterName, PostId};

fn views(post: &str) -> CounterId {
    CounterId { post: PostId::new(post).unwrap(), name: CounterName::new("views", CounterKind::Sum).unwrap() }
}

/// Returns a producer for a topic of twelve partitions without lag.
fn spread(policy: SumPolicy) -> Spread {
    let mut spread = Spread::new(policy);
    spread.seen(&[0; 12]);
    spread
}

/// Sends `rate` events of `counter` in each of `count` seconds, from `second` on. Returns the choices of the last
/// second.
fn seconds(spread: &mut Spread, counter: &CounterId, second: u64, count: u64, rate: u64) -> Vec<Option<u32>> {
    let mut last = Vec::new();
    for second in second..second + count {
        last = (0..rate)
            .map(|nth| spread.choose(counter, Duration::from_micros(second * 1_000_000 + nth * 1_000_000 / rate), nth))
            .collect();
    }
    last
}

fn partitions(sent: &[Option<u32>]) -> BTreeSet<u32> {
    sent.iter().flatten().copied().collect()
}

#[test]
fn by_post_the_key_decides_at_any_rate_and_so_it_does_before_the_partitions_are_known() {
    for mut spread in [spread(SumPolicy::Post), Spread::new(SumPolicy::RoundRobin)] {
        let sent = seconds(&mut spread, &views("p"), 0, 3, 50_000);
        assert!(sent.iter().all(Option::is_none));
    }
}

#[test]
fn a_width_doubles_above_ten_thousand_halves_below_two_and_a_half_and_rests_between() {
    let (mut spread, counter) = (spread(SumPolicy::RoundRobin), views("p"));
    let mut second = 0;
    let mut at = |rate: u64| {
        seconds(&mut spread, &counter, second, 6, rate);
        second += 6;
        spread.width(&counter)
    };
    let widths = [10_000, 10_100, 5_000, 4_900, 39_000, 10_100, 9_900, 200_000, 29_000, 1].map(&mut at);
    assert_eq!(widths, [1, 2, 2, 1, 4, 4, 2, 12, 6, 1]);
}

#[test]
fn after_a_silence_a_counter_begins_anew() {
    let (mut spread, counter) = (spread(SumPolicy::RoundRobin), views("p"));
    seconds(&mut spread, &counter, 0, 4, 36_000);
    assert_eq!(spread.width(&counter), 4);
    assert_eq!(spread.choose(&counter, Duration::from_secs(600), 0), None);
    assert_eq!(spread.width(&counter), 1);
}

#[test]
fn in_turn_means_that_all_get_the_same() {
    let (mut spread, counter) = (spread(SumPolicy::RoundRobin), views("p"));
    let sent = seconds(&mut spread, &counter, 0, 4, 36_000);
    for partition in partitions(&sent) {
        let share = sent.iter().filter(|chosen| **chosen == Some(partition)).count();
        assert_eq!(share, 9_000);
    }
}

#[test]
fn where_much_waits_nothing_is_sent_and_the_others_get_the_same() {
    let (mut spread, counter) = (spread(SumPolicy::LeastLag), views("p"));
    seconds(&mut spread, &counter, 0, 4, 36_000);
    let family = family(&counter, 12);
    let mut lags = [400; 12];
    lags[family[0] as usize] = 1_801;
    lags[family[1] as usize] = 1_800;
    spread.seen(&lags);
    let at = Duration::from_micros(4_000_000);
    let sent: Vec<Option<u32>> = (0..900).map(|_| spread.choose(&counter, at, 0)).collect();
    let shares: Vec<usize> =
        family[..4].iter().map(|partition| sent.iter().filter(|chosen| **chosen == Some(*partition)).count()).collect();
    assert_eq!(shares, [0, 300, 300, 300]);
}

#[test]
fn an_added_partition_makes_every_counter_begin_anew() {
    let (mut spread, counter) = (spread(SumPolicy::RoundRobin), views("p"));
    seconds(&mut spread, &counter, 0, 4, 36_000);
    spread.seen(&[0; 13]);
    assert_eq!(spread.width(&counter), 1);
}

#[test]
fn what_is_remembered_is_bounded_and_counters_that_are_quiet_or_begun_and_never_sent_make_room() {
    for is_begun in [false, true] {
        let (mut spread, busy) = (spread(SumPolicy::RoundRobin), views("busy"));
        for counter in (0..MOST_COUNTERS + 5).map(|nth| views(&format!("p-{nth}"))) {
            if is_begun {
                spread.begin(&counter, 4);
            } else {
                assert_eq!(spread.choose(&counter, Duration::ZERO, 0), None);
            }
        }
        assert_eq!(spread.counters.len(), MOST_COUNTERS);
        seconds(&mut spread, &busy, 2, 4, 36_000);
        assert_eq!(spread.width(&busy), 4);
        for nth in 0..2 * MOST_COUNTERS {
            spread.choose(&views(&format!("q-{nth}")), Duration::from_secs(6), 0);
        }
        assert_eq!((spread.width(&busy), spread.counters.len()), (4, MOST_COUNTERS), "a busy one is kept");
    }
}

/// Another order would send a counter to other partitions while producers of two versions run.
#[test]
fn families_are_pinned() {
    assert_eq!(family(&views("p"), 12)[..4], [2, 0, 4, 1]);
}

#[test]
fn a_counter_begins_with_the_width_that_it_was_asked_for_and_follows_its_rate_from_there() {
    let (mut spread, counter) = (spread(SumPolicy::RoundRobin), views("p"));
    assert_eq!((spread.begin(&counter, 8), spread.begin(&counter, 2)), (8, 8), "what was asked for first");
    assert_eq!(spread.begin(&views("q"), 256), 12, "there are no more");
    let later = Duration::from_secs(3_600);
    let first: Vec<Option<u32>> = (0..8).map(|_| spread.choose(&counter, later, 0)).collect();
    assert_eq!(partitions(&first).len(), 8, "however late its first event is");
    seconds(&mut spread, &counter, 3_601, 6, 9_000);
    assert_eq!((spread.width(&counter), spread.begin(&counter, 8)), (2, 2), "it is followed already");
    assert_eq!(Spread::new(SumPolicy::Post).begin(&counter, 8), 1);
}

#[test]
fn a_width_that_is_asked_for_before_the_partitions_are_known_is_kept() {
    let (mut spread, counter) = (Spread::new(SumPolicy::RoundRobin), views("p"));
    assert_eq!(spread.begin(&counter, 256), 256);
    spread.seen(&[0; 12]);
    let first: Vec<Option<u32>> = (0..12).map(|_| spread.choose(&counter, Duration::ZERO, 0)).collect();
    assert_eq!((partitions(&first).len(), spread.width(&counter)), (12, 12));
}

#[test]
fn an_audience_asks_for_a_partition_for_each_ten_thousand_events_a_second_of_5_in_10_000_followers() {
    for (followers, public, protected) in
        [(0, 1, 1), (20_000_000, 1, 1), (20_002_000, 2, 1), (50_000_000, 4, 2), (u64::MAX, 256, 256)]
    {
        assert_eq!((width_for(followers, false), width_for(followers, true)), (public, protected), "{followers}");
    }
}
