#![doc = include_str!("../README.md")]

mod app;
mod args;
pub mod fold;
mod ladder;
mod log;
mod metrics;
pub mod relay;
mod slots;

pub use app::{App, Ports};
pub use args::{Args, Config, Role, Rules};
pub use log::{LogPorts, group_of};
pub use metrics::CATALOGUE;
