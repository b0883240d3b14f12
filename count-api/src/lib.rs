// The process that serves counts over HTTP, and writes clients' likes to Kafka.
// The README is the documentation.

#![doc = include_str!("../README.md")]

pub mod access;
mod answer;
mod app;
mod args;
mod auth;
mod caching;
pub mod definitions;
pub mod error;
pub mod extract;
mod followed;
pub mod limits;
pub mod metrics;
mod milestones;
mod partitions;
pub mod read;
pub mod routes;
pub mod server;
pub mod tops;
pub mod value;
pub mod watch;

pub use app::{App, Ports};
pub use args::{Args, Config};
pub use partitions::Topics;
