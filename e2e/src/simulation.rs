//! The whole pipeline in one process and one thread under paused time. Every fault is drawn from a seed, and the laws are
//! checked during the run, at the end, and for every write of a counter.
//!
//! The services, their adapters and the SDK are the production ones, over the emulator without sockets and an in-memory log. A
//! mutant is the same pipeline with one rule broken at a port, so the services contain no test switches.

mod abroad;
mod cache;
pub mod command;
mod course;
mod driver;
pub(crate) mod events;
mod faults;
mod fold;
pub(crate) mod history;
pub(crate) mod honest;
mod instance;
mod intake;
mod journal;
pub(crate) mod laws;
mod lists;
mod mutant;
mod outcome;
mod producer;
mod profile;
mod readers;
mod registers;
mod rewrite;
mod schedule;
mod trace;
mod wire;
pub(crate) mod world;

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use tally_service::Chance;

pub use faults::{kinds, kinds_of_lists, kinds_of_regions};
pub use mutant::Mutant;
pub use outcome::Outcome;
pub use schedule::{Form, Order, run};

/// Random choices, named after what they decide.
pub(crate) trait Draws {
    /// A number below `bound`, or 0 if there is none.
    fn below(&self, bound: u64) -> u64;

    /// Whether an event with a probability of `percent` happens.
    fn happens(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A number from `least` to `most`.
    fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// A duration from `least` to `most` milliseconds.
    fn millis(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// An index below `length`.
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

/// The name of a variant as an argument.
pub(crate) fn name_of(variant: &impl ValueEnum) -> String {
    variant.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

static IS_SEEDED: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU64 = AtomicU64::new(0);

/// Derives all random bytes from `seed` from now on.
pub(crate) fn seed_randomness(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
    IS_SEEDED.store(true, Ordering::Relaxed);
}

/// Fills `bytes` from the seed, or from the system if there is none. Returns whether that worked.
fn fill(bytes: &mut [u8]) -> bool {
    if !IS_SEEDED.load(Ordering::Relaxed) {
        return File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes)).is_ok();
    }
    let chance = Chance::seeded(STATE.fetch_add(1, Ordering::Relaxed));
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&chance.token().to_le_bytes()[..part.len()]);
    }
    true
}

#[expect(unsafe_code, reason = "the standard library looks this symbol up: the one way to give its maps a seed")]
mod symbol {
    /// Replaces libc's function of this name, without its flags.
    ///
    /// # Safety
    /// `buffer` must be valid for `length` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
        if super::fill(bytes) { isize::try_from(length).unwrap_or(-1) } else { -1 }
    }
}
