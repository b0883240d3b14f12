#![doc = include_str!("../README.md")]

mod app;
mod args;
mod board;
mod cache;
mod chaos;
mod claims;
mod client;
mod config;
mod control;
mod counters;
mod engine;
mod gate;
mod happened;
mod keeper;
mod ledger;
mod ledger_producer;
mod load;
mod local;
mod milestones;
mod names;
mod observe;
pub mod page;
mod probe;
mod screen;
mod services;
mod session;
mod sightings;
mod stack;
mod staleness;
mod verify;

pub use app::App;
pub use args::Args;
pub use config::Config;
