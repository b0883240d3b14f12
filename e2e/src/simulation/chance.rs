//! What a schedule draws, all of it from one seed.

use std::time::Duration;

use tally_service::Chance;

/// Draws that read as what they decide.
pub(crate) trait Draws {
    /// A number below `bound`, 0 where there is none.
    fn below(&self, bound: u64) -> u64;

    /// Whether something happens that happens in `percent` of all cases.
    fn happens(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A number from `least` to `most`.
    fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// A span from `least` to `most` milliseconds.
    fn millis(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// A place in something with `length` places.
    fn place(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One of `choices`.
    fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.place(choices.len())]
    }
}

impl Draws for Chance {
    fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.token() % bound }
    }
}
