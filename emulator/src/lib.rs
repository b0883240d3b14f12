// DynamoDB and DynamoDB Streams in memory, for tests, the local stack and the simulation.
// The README is the documentation.

#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod config;
mod control;
mod emulator;
mod engine;
mod envelope;
mod error;
mod expression;
mod fault;
mod json;
mod limits;
mod number;
mod op;
mod policies;
mod server;
pub mod value;

pub use crate::config::{Config, Latency};
pub use crate::control::{ControlError, Stats, StreamStats, TableStats};
pub use crate::emulator::{Emulator, Lost};
pub use crate::engine::table::Changed;
pub use crate::fault::{Fault, Rule, When};
pub use crate::policies::Policies;
