//! How bad a network is, and what came of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a proxy does with what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes it on.
    Pass,
    /// Resets every connection there is, and each new one.
    Reset,
    /// Takes everything and answers nothing; connections stay.
    Blackhole,
    /// Passes it on late, and so many bytes a second in each direction.
    Slow {
        /// Before every piece.
        delay: Duration,
        /// Of one direction of one connection.
        bytes_per_second: u64,
    },
    /// Resets a connection after so many bytes of both directions together.
    Cut {
        /// That many.
        after: u64,
    },
}

impl Mode {
    /// Every exchange of a request and its answer takes about so long.
    pub(crate) fn late(exchange: Duration) -> Self {
        Self::Slow { delay: exchange / 2, bytes_per_second: 1 << 30 }
    }
}

/// What a proxy has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bites {
    /// Connections that did not end in order.
    pub(crate) broken: u64,
    /// Bytes that were held in a black hole.
    pub(crate) swallowed: u64,
    /// Bytes that went slowly.
    pub(crate) slowed: u64,
}

impl Bites {
    /// What was done since.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            broken: self.broken - earlier.broken,
            swallowed: self.swallowed - earlier.swallowed,
            slowed: self.slowed - earlier.slowed,
        }
    }

    /// Whether weather of this kind was felt.
    pub(crate) fn felt(self, mode: Mode) -> bool {
        match mode {
            Mode::Pass => true,
            Mode::Reset | Mode::Cut { .. } => self.broken > 0,
            Mode::Blackhole => self.swallowed > 0,
            Mode::Slow { .. } => self.slowed > 0,
        }
    }
}

/// Bites while they are counted.
#[derive(Debug, Default)]
pub(super) struct Count {
    broken: AtomicU64,
    swallowed: AtomicU64,
    slowed: AtomicU64,
}

impl Count {
    pub(super) fn broke(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn swallowed(&self, bytes: usize) {
        self.swallowed.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn slowed(&self, bytes: usize) {
        self.slowed.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn bites(&self) -> Bites {
        let [broken, swallowed, slowed] =
            [&self.broken, &self.swallowed, &self.slowed].map(|count| count.load(Ordering::Relaxed));
        Bites { broken, swallowed, slowed }
    }
}

/// How many bytes may go within `span`, at least one.
pub(super) fn room(bytes_per_second: u64, span: Duration) -> usize {
    let bytes = u128::from(bytes_per_second) * span.as_millis() / 1_000;
    usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weather_is_felt_by_what_it_does_alone() {
        let slow = Mode::Slow { delay: Duration::ZERO, bytes_per_second: 1 };
        let modes = [Mode::Reset, Mode::Cut { after: 1 }, Mode::Blackhole, slow];
        let felt = |bites: Bites| modes.map(|mode| bites.felt(mode));
        let nothing = Bites::default();
        assert_eq!(felt(nothing), [false; 4]);
        assert_eq!(felt(Bites { broken: 1, ..nothing }), [true, true, false, false]);
        assert_eq!(felt(Bites { swallowed: 1, ..nothing }), [false, false, true, false]);
        assert_eq!(felt(Bites { slowed: 1, ..nothing }), [false, false, false, true]);
        let later = Bites { broken: 3, swallowed: 2, slowed: 1 };
        assert_eq!(later.since(Bites { broken: 1, ..nothing }), Bites { broken: 2, swallowed: 2, slowed: 1 });
    }

    #[test]
    fn a_trickle_never_dries_up() {
        assert_eq!(room(1_000, Duration::from_millis(50)), 50);
        assert_eq!(room(1, Duration::from_millis(50)), 1);
    }
}
