//! The tasks that the supervisor runs, the ways in which they can end, and the exit codes that follow.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::Poll;

use tally_core::format::UnknownFormat;
use thiserror::Error;

use crate::{GivenUp, Invalid, Stop, Stopped};

/// A part of a process that runs until it is asked to stop. It is a struct with this method, or a closure.
pub trait Task: Send + 'static {
    /// Works until `stop` is requested, drains, and returns. Returning earlier stops the process.
    ///
    /// # Errors
    /// An error that the task cannot recover from; it stops the process. [`Stopped`] is a clean end.
    fn run(self, stop: Stop) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl<F, Fut> Task for F
where
    F: FnOnce(Stop) -> Fut + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    fn run(self, stop: Stop) -> impl Future<Output = anyhow::Result<()>> + Send {
        self(stop)
    }
}

/// The order in which tasks are asked to stop. Each stage is asked once the previous one has ended, so that work flows
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Takes in work: reads a topic or a stream, accepts requests.
    Intake,
    /// Processes the work: deduplicates, folds, writes.
    Work,
    /// Follows the results: checkpoints, cache, feeds.
    Output,
    /// Serves all other stages until the end: leases, the admin listener.
    Support,
}

impl Stage {
    /// Every stage, in the order of shutdown.
    pub const ALL: [Self; 4] = [Self::Intake, Self::Work, Self::Output, Self::Support];
}

/// The end of a task that the process did not expect, or with which it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub task: String,
    pub how: How,
}

/// How a task ended. A return after the request to stop is not listed here, since it is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// It returned before it was asked to stop.
    Early,
    /// It returned this error, which ends the process with this code. The text includes its causes.
    Failed(String, Exit),
    /// The stored data is in a format that this build does not know and must neither read nor write.
    UnknownFormat(UnknownFormat),
    /// It panicked with this message.
    Panicked(String),
    /// It ignored the request to stop and was aborted at the end of the grace period.
    Overran,
    /// A job finished, and the process ends with it.
    Finished(Exit),
}

impl Ended {
    /// Returns the exit code for this end.
    pub fn exit(&self) -> Exit {
        self.how.exit()
    }
}

impl How {
    fn after(error: &anyhow::Error) -> Self {
        if let Some(found) = error.chain().find_map(|cause| cause.downcast_ref::<UnknownFormat>()) {
            return Self::UnknownFormat(found.clone());
        }
        let exit = if error.chain().any(|cause| cause.is::<Invalid>() || cause.is::<Unfit>()) {
            Exit::CONFIG
        } else if error.chain().any(|cause| cause.is::<GivenUp>()) {
            Exit::UNAVAILABLE
        } else {
            Exit::FAILED
        };
        Self::Failed(format!("{error:#}"), exit)
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Finished(exit) | Self::Failed(_, exit) => *exit,
            Self::UnknownFormat(_) => Exit::FORMAT,
            Self::Early | Self::Panicked(_) | Self::Overran => Exit::FAILED,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = &self.task;
        match &self.how {
            How::UnknownFormat(found) => write!(f, "task `{task}` failed: {found}"),
            How::Early => write!(f, "task `{task}` ended early"),
            How::Failed(error, _) => write!(f, "task `{task}` failed: {error}"),
            How::Panicked(message) => write!(f, "task `{task}` panicked: {message}"),
            How::Overran => write!(f, "task `{task}` did not stop within the grace and was aborted"),
            How::Finished(_) => write!(f, "job `{task}` finished"),
        }
    }
}

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

    /// Returns the exit code after `error`.
    pub fn after(error: &anyhow::Error) -> Self {
        How::after(error).exit()
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

pub(crate) enum Outcome {
    Returned(anyhow::Result<Exit>),
    Panicked(String),
    Aborted,
}

/// Judges a task that returned `Ok` with this exit code; the flag says whether it had been asked to stop. `None`: the
/// return was expected.
pub(crate) type Returned = fn(Exit, bool) -> Option<How>;

impl Outcome {
    /// Returns how a task ended, or `None` if that was expected.
    pub(crate) fn judge(self, stopping: bool, returned: Returned) -> Option<How> {
        match self {
            Self::Aborted => None,
            Self::Panicked(message) => Some(How::Panicked(message)),
            Self::Returned(Err(error)) if stopping && error.is::<Stopped>() => None,
            Self::Returned(Err(error)) => Some(How::after(&error)),
            Self::Returned(Ok(exit)) => returned(exit, stopping),
        }
    }
}

pub(crate) type Work = Pin<Box<dyn Future<Output = anyhow::Result<Exit>> + Send>>;

/// Runs `work` until it returns or panics, and drops it.
pub(crate) async fn outcome_of(mut work: Work) -> Outcome {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Outcome::Returned),
        Err(payload) => Poll::Ready(Outcome::Panicked(panic_message(payload.as_ref()).to_owned())),
    })
    .await
}

/// Returns the text of a panic's payload.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
