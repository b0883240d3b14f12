#![doc = include_str!("../README.md")]

mod app;
mod applier;
mod args;
mod cache;
mod closing;
mod config;
mod directory;
mod feed;
mod follow;
mod gaps;
mod latest;
mod leases;
mod metrics;
mod publisher;
mod reader;
mod registry;
mod shard;
mod slots;
mod stores;
mod view;
mod watchdog;

pub use app::{App, FeedPort, Ports};
pub use args::Args;
pub use config::{CacheAddress, Config, FeedConfig, Rules};
pub use metrics::CATALOGUE;
pub use reader::PollRules;
