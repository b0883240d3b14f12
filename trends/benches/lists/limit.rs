//! The memory that a key takes.

use tally_trends::{BoardRules, Fold};

use crate::load::{Draw, Load, change, resident};
use crate::{BEGAN, size, windows};

/// Changes per second.
const CHANGES: u64 = 2_000;

/// Measures the memory of ten million keys, each changed once and then by Zipf 1 for 2 hours, over 1h and 24h.
pub(crate) fn run() {
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
