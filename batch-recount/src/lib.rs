#![doc = include_str!("../README.md")]

mod app;
mod args;
mod audit;
mod budget;
mod calls;
mod claims;
mod config;
mod cost;
mod counters;
mod erase;
mod findings;
mod gaps;
mod metrics;
mod places;
mod progress;
mod queue;
mod recounter;
mod routes;
mod row_budget;
mod run;
pub mod settle;
mod store;
mod stream_view;
mod totals;
mod trails;
mod turns;
mod watch;
mod window;
mod windows;

pub use app::{App, Ports};
pub use args::Args;
pub use config::{Config, EraseConfig, Job, RecountConfig, Rules, Scope, Since, Subject};
pub use erase::{Erased, erase};
pub use metrics::CATALOGUE;
