#![doc = include_str!("../README.md")]

mod app;
mod args;
mod config;
mod counters;
mod dlq;
mod fences;
mod homes;
mod import;
mod lag;
mod letter;
mod membership;
pub mod metrics;
mod misrouted;
mod print;
mod trace;
mod worker;

pub use app::{App, OpenTopic, Ports};
pub use args::{Args, Command, ResetTo};
pub use config::{Config, Mode, ReadSettings, group_of};
pub use fences::Reset;
pub use import::{Format, ImportSettings, Source};
