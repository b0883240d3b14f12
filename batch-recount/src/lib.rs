#![doc = include_str!("../README.md")]

mod app;
mod args;
mod budget;
mod calls;
mod config;
mod erase;
mod findings;
mod metrics;
mod progress;
mod routes;
mod run;
pub mod settle;
mod watch;

pub use app::{App, LogPorts, Ports};
pub use args::Args;
pub use config::{Config, EraseConfig, Job, RecountConfig, Scope, Since, Subject};
pub use erase::{ErasePorts, Erased, Tombstones, erase};
pub use metrics::CATALOGUE;
pub use settle::Rules;
