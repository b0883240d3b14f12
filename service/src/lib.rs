// What every process shares: how it starts and stops, logs, measures and reads its arguments.
// The README is the documentation.

#![doc = include_str!("../README.md")]

pub mod admin;
mod args;
mod chance;
mod clock;
mod config;
mod host;
pub mod http;
pub mod metrics;
mod patience;
mod readiness;
mod run;
mod secret;
mod seldom;
mod standstill;
mod stop;
mod supervisor;
mod task;
pub mod telemetry;
mod variables;

pub use args::{
    CommonArgs, Listen, StoreArgs, defaults, duration, parse_duration, positive_duration, reference, text, within,
};
pub use chance::Chance;
pub use clock::{Clock, StoreClock};
pub use config::Invalid;
pub use host::{App, Host, Running};
pub use http::{Limits, Server, open_files};
pub use patience::{GivenUp, Patience, Until};
pub use readiness::{Condition, Readiness, Report};
pub use run::{Arguments, Program, Signals, run};
pub use secret::{Secret, SecretFile};
pub use seldom::Seldom;
pub use standstill::Standstill;
pub use stop::{Stop, Stopped, Switch};
pub use supervisor::{Shutdown, Worker};
pub use tally_core::time::UnixMillis;
pub use task::{Ended, Exit, How, Stage, Task, Unfit};
pub use variables::{environment, unknown, unlisted, unread};

/// Every process makes many small allocations on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
