#![doc = include_str!("../README.md")]

mod app;
mod args;
mod audit;
mod budget;
mod closing;
mod config;
mod cost;
mod erase;
mod metrics;
mod progress;
mod queue;
mod repair;
mod room;
mod routes;
mod run;
mod share;
mod skew;
mod summary;
mod tools;
mod totals;
mod watch;
mod window;

pub use app::{App, Ports};
pub use args::Args;
pub use config::{Config, EraseConfig, Job, RecountConfig, Rules, Scope, Since, Subject};
pub use cost::Cost;
pub use metrics::CATALOGUE;
pub use summary::{Cause, Drift, Summary};
