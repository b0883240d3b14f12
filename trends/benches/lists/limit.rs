//! The memory that a key takes, and the quality of lists with ten times more keys than the limit.

use tally_core::Map;
use tally_trends::{BoardRules, Fold};

use crate::load::{Draw, Load, change, resident};
use crate::{BEGAN, LIKES, size, windows};

/// Changes per second.
const CHANGES: u64 = 2_000;

pub(crate) fn run() {
    a_key();
    ten_times_more();
}

/// Measures the memory of ten million keys, each changed once and then by Zipf 1 for 2 hours, over 1h and 24h.
fn a_key() {
    let keys = size("TALLY_BENCH_KEYS", 10_000_000);
    let before = resident();
    let mut fold = Fold::new(&windows(&["1h", "24h"]), BoardRules::default(), BEGAN);
    for (nth, one) in Load::each(keys).changes().enumerate() {
        fold.take(&change(nth as u64, u32::try_from(nth).expect("not as many"), one.second, [0, 1]));
        if nth.is_multiple_of(1_000_000) {
            fold.advance(one.second);
        }
    }
    let (mut draw, mut greatest) = (Draw(3), 0);
    let began = BEGAN + keys as u64 / crate::A_SECOND;
    for second in 1..=7_200 {
        for nth in 0..CHANGES {
            let key = draw.zipf(keys);
            fold.take(&change(second * CHANGES + nth, key, began + second, [0, 1]));
        }
        fold.advance(began + second);
        if second.is_multiple_of(60) {
            greatest = greatest.max(resident() - before);
        }
    }
    let (held, now) = (fold.keys(), resident() - before);
    let each = now as f64 / held as f64;
    println!(
        "{held} keys after 2 h of {CHANGES} changes/s: {} MiB, at most {} MiB on the way",
        now >> 20,
        greatest >> 20
    );
    println!("  {each:.1} B a key, at most {:.1}; aim 72 or less", greatest as f64 / held as f64);
    println!("  a hundred million keys on paper: {:.1} GiB", each * 1e8 / f64::from(1 << 30));
    assert!(each <= 72.0, "a key takes {each:.1} B");
}

/// Compares lists with ten times more keys than the limit, over 1m and 10m, for 20 minutes of likes and unlikes.
fn ten_times_more() {
    let most = size("TALLY_BENCH_MOST", 100_000);
    let (keys, both) = (most * 10, windows(&["1m", "10m"]));
    let mut fold = Fold::new(&both, BoardRules::default(), BEGAN).with_keys(most);
    let (mut draw, mut nth, mut all) = (Draw(5), 0, Vec::new());
    let (mut moments, mut numbers, mut greatest, mut bound, mut exact) = (0, 0, 0, 0, 0);
    let (mut least_memory, mut most_memory) = (usize::MAX, 0);
    for second in 1..=1_200 {
        for _ in 0..CHANGES * 5 {
            // One change in ten takes back an earlier one.
            let (key, back) = (draw.zipf(keys), draw.next().is_multiple_of(10));
            fold.take(&change(nth, key, BEGAN + second, if back { [1, 0] } else { [0, 1] }));
            all.push((second, key, if back { -1 } else { 1 }));
            (greatest, nth) = (greatest.max(fold.keys()), nth + 1);
        }
        fold.advance(BEGAN + second);
        assert!(fold.keys() <= most, "{} keys", fold.keys());
        if !second.is_multiple_of(20) || second < 120 {
            continue;
        }
        for index in 0..both.len() {
            (moments, numbers) = (moments + 1, numbers + usize::from(fold.bound(index) < u64::MAX));
            exact += usize::from(fold.bound(index) == 0);
            bound = bound.max(fold.bound(index));
            check(&mut fold, index, &all);
        }
        if second >= 600 {
            let now = resident().saturating_sub(size_of_val(&all[..]));
            (least_memory, most_memory) = (least_memory.min(now), most_memory.max(now));
        }
    }
    println!("{keys} keys where there may be {most}: {greatest} held at most, {} shed", fold.shed_keys());
    println!(
        "  of {moments} lists {numbers} had a bound, {exact} of them 0; the greatest was {bound}; none was violated"
    );
    println!(
        "  memory in the last 10 minutes: {} to {} MiB, the truth left out",
        least_memory >> 20,
        most_memory >> 20
    );
    assert!(numbers * 10 >= moments * 9 && fold.shed_keys() > 0);
}

/// Compares a list with the true sums.
fn check(fold: &mut Fold, index: usize, all: &[(u64, u32, i64)]) {
    let (list, bound) = (fold.list(&LIKES, index), fold.bound(index));
    let from = list.from - BEGAN.min(list.from);
    let mut sums: Map<u32, i64> = Map::default();
    for (second, key, gained) in all.iter().rev().take_while(|(second, ..)| *second > from) {
        debug_assert!(*second > from);
        *sums.entry(*key).or_default() += gained;
    }
    let mut by_id: Map<_, _> = sums.into_iter().map(|(key, sum)| (crate::load::id(key), sum)).collect();
    for item in &list.items {
        let sum = by_id.remove(&item.subject).unwrap_or_default();
        assert!(sum.abs_diff(item.count()) <= bound, "{item:?} is {sum}, bound {bound}");
    }
    let last = list.items.last().map_or(0, |last| last.count());
    let beats = by_id.values().max().map_or(0, |sum| (*sum).max(last).abs_diff(last));
    assert!(beats <= bound, "an unlisted one beats {last} by {beats}, bound {bound}");
}
