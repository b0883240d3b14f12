#![doc = include_str!("../README.md")]

mod app;
mod args;
pub mod counters;
pub mod dlq;
mod draw;
mod identity;
mod import;
mod letter;
pub mod metrics;
mod misrouted;
mod partition;
mod trace;

pub use app::{App, OpenTopic, Ports, replay_group};
pub use args::{Args, Config, ReadSettings, group_of};
pub use draw::{Draw, Drawn, Found};
pub use import::{Format, Import, ImportArgs, Imported, Source};
