#![doc = include_str!("../README.md")]

mod app;
mod applier;
mod args;
mod cache;
mod closing;
mod config;
mod courier;
mod directory;
mod feed;
mod flush;
mod follow;
mod gaps;
mod leases;
mod metrics;
mod outlet;
mod reader;
mod registry;
mod seen;
mod shard;
mod slots;
mod view;
mod watchdog;

pub use app::{App, FeedPort, Ports};
pub use args::Args;
pub use config::{CacheAddress, Config, FeedConfig, Rules};
pub use metrics::CATALOGUE;
pub use reader::PollRules;
