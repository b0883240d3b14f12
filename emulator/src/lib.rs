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
mod latency;
mod limits;
pub mod number;
mod op;
mod policies;
mod server;
mod stats;
pub mod value;
mod wire;

pub use crate::config::Config;
pub use crate::control::ControlError;
pub use crate::emulator::{Emulator, Lost};
pub use crate::engine::watch::Changed;
pub use crate::fault::{Fault, Rule, When};
pub use crate::latency::{BadSpan, Latency, parse_duration};
pub use crate::policies::{BadPolicies, Policies, ROOT};
pub use crate::stats::{Stats, StreamStats, TableStats};
