//! How long a process waits before it repeats something that failed, such as a call to DynamoDB: exponential, capped,
//! with full jitter. The caller draws the random number.

use std::time::Duration;

/// A schedule of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait before the first repeat.
    pub base: Duration,
    /// The longest wait of all.
    pub cap: Duration,
}

impl Backoff {
    /// For a store: from 25 ms to 5 s.
    pub const STORE: Self = Self { base: Duration::from_millis(25), cap: Duration::from_secs(5) };

    /// Returns the wait before try `attempt` (0 is the first repeat): the share `jitter`, drawn from 0 to 1, of the
    /// ceiling. So callers that were refused together do not come back together.
    pub fn wait(&self, attempt: u32, jitter: f64) -> Duration {
        self.ceiling(attempt).mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// Returns the longest wait before try `attempt`.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        self.base.saturating_mul(2u32.saturating_pow(attempt)).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_never_overflow() {
        let backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(1) };
        let ceilings: Vec<u128> = (0..5).map(|attempt| backoff.ceiling(attempt).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1000]);
        assert_eq!(backoff.ceiling(u32::MAX), backoff.cap);
        assert_eq!([backoff.wait(3, 0.0), backoff.wait(3, 0.5)], [Duration::ZERO, backoff.ceiling(3) / 2]);
    }
}
