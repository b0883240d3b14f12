//! Exit codes, and the errors that have one of their own.

use std::process::ExitCode;

use thiserror::Error;

/// The stored data or the address to listen on cannot be used. Starting again does not help: an operator has to act.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// The exit code of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// Everything was drained, or the job found nothing wrong.
    pub const CLEAN: Self = Self(0);
    /// A task failed, start-up failed, a task did not end within the grace period, or a job found what it looks for.
    pub const FAILED: Self = Self(1);
    /// The deployment's data is in a format that this build does not know.
    pub const FORMAT: Self = Self::CONFIG;
    /// Something that a job needs does not answer or no longer exists (`EX_UNAVAILABLE` of sysexits.h).
    pub const UNAVAILABLE: Self = Self(69);
    /// The configuration is wrong (`EX_CONFIG` of sysexits.h).
    pub const CONFIG: Self = Self(78);

    /// Returns the code of a process that a second signal has ended; shells report the same.
    pub fn signal(number: u8) -> Self {
        Self(number.saturating_add(128))
    }

    pub fn code(self) -> u8 {
        self.0
    }

    pub fn is_clean(self) -> bool {
        self == Self::CLEAN
    }

    /// Returns this code, or `other` if this one is clean.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self.is_clean() { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}
