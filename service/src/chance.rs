//! The source of all random numbers of a process, so that a run can be repeated with its seed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random numbers from one seed (SplitMix64). Clones draw from the same sequence, so no two of them get the same
/// number.
///
/// Good for jitter and for tokens that must differ; not for secrets.
#[derive(Clone, Debug)]
pub struct Chance(Arc<AtomicU64>);

impl Chance {
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// Creates a sequence that no other process has.
    pub fn from_entropy() -> Self {
        Self::seeded(RandomState::new().build_hasher().finish())
    }

    /// Returns an independent sequence, for a part whose draws must not depend on what others draw in the meantime.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::seeded(self.token())
    }

    pub fn token(&self) -> u64 {
        let mut bits = self.0.fetch_add(GOLDEN_GAMMA, Ordering::Relaxed).wrapping_add(GOLDEN_GAMMA);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a random number in `0.0..1.0`, for the jitter of a backoff.
    pub fn fraction(&self) -> f64 {
        let bits = u32::try_from(self.token() >> 32).unwrap_or(u32::MAX);
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }

    pub fn up_to(&self, limit: Duration) -> Duration {
        limit.mul_f64(self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_the_published_sequence() {
        let chance = Chance::seeded(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| chance.token()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn clones_share_a_sequence_and_forks_do_not() {
        let (chance, other) = (Chance::seeded(7), Chance::seeded(7));
        let clone = chance.clone();
        assert_eq!([chance.token(), clone.token()], [other.token(), other.token()]);
        let fork = chance.fork();
        assert_ne!(fork.token(), chance.token());
    }

    #[test]
    fn fractions_lie_between_0_and_1_and_average_one_half() {
        let chance = Chance::seeded(1);
        let drawn: Vec<f64> = (0..10_000).map(|_| chance.fraction()).collect();
        assert!(drawn.iter().all(|f| (0.0..1.0).contains(f)));
        let mean = drawn.iter().sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
    }
}
