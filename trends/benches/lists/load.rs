//! Generates the changes (likes of posts) that the benchmarks of trending lists add up. They are drawn from a seed, so
//! that each variant gets the same ones.

use tally_core::changes::{Effect, Entry, Side};
use tally_core::ids::{CounterId, MemberKey, PostId, RowKey, Shard};
use tally_service::Chance;

use crate::{A_SECOND, BEGAN};

/// The keys of the changes, in order.
pub(crate) struct Load(Vec<u32>);

/// Draws one of `keys` keys, where key n has a probability proportional to 1/n.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and the keys")]
pub(crate) fn zipf(chance: &Chance, keys: usize) -> u32 {
    let share = (chance.token() >> 11) as f64 / (1u64 << 53) as f64;
    // The inverse of ln(n + 1) / ln(keys + 1).
    ((keys as f64 + 1.0).powf(share) - 1.0) as u32
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
        let chance = Chance::seeded(7);
        Self((0..changes).map(|_| zipf(&chance, keys)).collect())
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
