// The process that compares every count with the rows it counts, and repairs differences.
// The README is the documentation.

#![doc = include_str!("../README.md")]

mod app;
mod args;
mod calls;
mod findings;
mod metrics;
mod progress;
mod routes;
mod run;
pub mod settle;
mod watch;

pub use app::{App, LogPorts, Ports};
pub use args::{Args, Scope, Since};
pub use calls::{Calls, at_once};
pub use metrics::CATALOGUE;
pub use run::recount;
pub use settle::{Rules, chosen};
