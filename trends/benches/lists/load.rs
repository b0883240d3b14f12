//! Loads for benchmarks: drawn from a seed, so that each variant gets the same changes, and generated one by one.

use tally_core::changes::{Effect, Entry, Side};
use tally_core::ids::{CounterId, MemberKey, PostId, RowKey, Shard};

use crate::{A_SECOND, BEGAN};

/// The keys of the changes, in order.
pub(crate) struct Load(Vec<u32>);

/// A random number generator that is good enough for benchmarks.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One of `keys` keys, where key n has a probability proportional to 1/n.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and the keys")]
    pub(crate) fn zipf(&mut self, keys: usize) -> u32 {
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        // The inverse of ln(n + 1) / ln(keys + 1).
        ((keys as f64 + 1.0).powf(share) - 1.0) as u32
    }
}

pub(crate) fn id(key: u32) -> PostId {
    // Keys of neighbouring ranks are not neighbours in the order of ids.
    PostId::new(&format!("post-{:08x}", key.wrapping_mul(0x9e37_79b1))).expect("it is an id")
}

/// A like or an unlike.
pub(crate) fn change(nth: u64, key: u32, second: u64, [before, after]: [i64; 2]) -> Entry {
    let side = |weight| Side { weight, ..Side::default() };
    let member = MemberKey::new("user-12345678").expect("it is an id");
    let key = RowKey { counter: CounterId::likes(id(key)), shard: Shard::new(0).expect("there is one") };
    let effect = Effect::Weighed { member, before: side(before), after: side(after) };
    Entry { key, effect, second, sequence: (nth + 1).into() }
}

impl Load {
    pub(crate) fn zipf(keys: usize, changes: usize) -> Self {
        let mut draw = Draw(7);
        Self((0..changes).map(|_| draw.zipf(keys)).collect())
    }

    /// Each key once.
    pub(crate) fn each(keys: usize) -> Self {
        Self((0..u32::try_from(keys).expect("not as many")).collect())
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = Entry> {
        (0..).zip(&self.0).map(|(nth, key)| change(nth, *key, BEGAN + 1 + nth / A_SECOND, [0, 1]))
    }
}

/// The resident memory of this process, in bytes.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or_default() * 1024
}
