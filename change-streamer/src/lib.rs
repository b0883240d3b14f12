// The process that copies the stream of the table of likes into a Kafka topic, and adds that topic up into counters and Redis.
// The README is the documentation.

#![doc = include_str!("../README.md")]

mod app;
mod args;
mod fold;
mod ladder;
mod log;
mod metrics;
mod regions;
mod relay;

pub use app::{App, Ports};
pub use args::{Args, RegionArgs, Role, Rules, Settings};
pub use log::{LogPorts, group_of};
pub use metrics::CATALOGUE;
pub use regions::{RegionPorts, RemotePorts};
