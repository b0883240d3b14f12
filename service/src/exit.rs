//! How a process ends: its exit codes, and which errors have one of their own.

use std::process::ExitCode;

use tally_core::format::UnknownFormat;
use thiserror::Error;

use crate::{GivenUp, Invalid};

/// What is stored is not what a process may start over, or the address to listen on cannot be had. Starting again changes nothing:
/// an operator has to act.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// Whether what is configured is wrong, or what it is to work on.
pub(crate) fn is_misconfigured(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Invalid>() || cause.is::<Unfit>())
}

/// Whether what is needed did not answer for as long as a job waits.
pub(crate) fn is_unavailable(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<GivenUp>())
}

/// The code a process ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// Everything was drained, or the job found nothing wrong.
    pub const CLEAN: Self = Self(0);
    /// A task failed, start-up failed, a task overran the grace, or a job found what it looks for.
    pub const FAILED: Self = Self(1);
    /// What the deployment has stored is in a format that this build does not know: the wrong build is configured.
    pub const FORMAT: Self = Self::CONFIG;
    /// What a job needs does not answer, or is not there any more (`EX_UNAVAILABLE` of sysexits.h).
    pub const UNAVAILABLE: Self = Self(69);
    /// The configuration is wrong (`EX_CONFIG` of sysexits.h).
    pub const CONFIG: Self = Self(78);

    /// What a process ends with that cannot go on after `error`.
    pub fn after(error: &anyhow::Error) -> Self {
        if error.chain().any(|cause| cause.is::<UnknownFormat>()) {
            Self::FORMAT
        } else if is_misconfigured(error) {
            Self::CONFIG
        } else if is_unavailable(error) {
            Self::UNAVAILABLE
        } else {
            Self::FAILED
        }
    }

    /// Ended at once by a second signal, as shells report it.
    pub fn signal(number: u8) -> Self {
        Self(number.saturating_add(128))
    }

    pub fn code(self) -> u8 {
        self.0
    }

    /// Whether it says that all went well.
    pub fn is_clean(self) -> bool {
        self == Self::CLEAN
    }

    /// This, unless it is clean; then `other`.
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
