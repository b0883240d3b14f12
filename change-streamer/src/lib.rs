#![doc = include_str!("../README.md")]

mod app;
mod applier;
mod args;
mod cache;
mod calls;
mod config;
mod feed;
pub mod fold;
mod follow;
mod health;
mod ladder;
mod latest;
mod ledger;
mod metrics;
mod publisher;
mod reader;
mod readers;
mod recorder;
pub mod relay;
mod reports;
mod shard;
mod slots;
mod stores;
mod tell;

pub use app::{App, FeedPort, Ports};
pub use args::Args;
pub use config::{CacheAddress, Config, FeedConfig, Rules};
pub use ledger::ChangesPort;
pub use metrics::CATALOGUE;
pub use reader::PollRules;
