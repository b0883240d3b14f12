#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod config;
mod control;
mod emulator;
mod engine;
mod envelope;
mod error;
pub mod expression;
mod fault;
mod json;
mod latency;
mod limits;
pub mod number;
mod op;
mod policies;
mod server;
mod stats;
pub mod value;

pub use crate::config::Config;
pub use crate::control::ControlError;
pub use crate::emulator::{Emulator, Lost};
pub use crate::engine::watch::Changed;
pub use crate::fault::{Fault, Rule, When};
pub use crate::latency::Latency;
pub use crate::policies::Policies;
pub use crate::stats::{Stats, StreamStats, TableStats};
