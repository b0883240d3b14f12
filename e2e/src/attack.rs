//! The whole pipeline as real processes, under signals and a bad network, held against a ledger of what was said.
//!
//! The services are processes of their own that run what their binaries run; Kafka is librdkafka's in-process cluster, the
//! tables are the emulator's over HTTP, and the cache is a Redis server where one is installed. Between them and the
//! services stand proxies, so that each dependency can go away without its contents.

mod answers;
mod campaign;
mod command;
mod engines;
mod figures;
mod fleet;
mod http;
mod laws;
mod ledger;
mod load;
mod process;
mod proxy;
mod recounts;
mod redis;
mod schedule;
mod service;
mod stage;
mod wait;

pub use campaign::{Campaign, Extent, fight};
pub use command::Attack;
pub use service::Service;
