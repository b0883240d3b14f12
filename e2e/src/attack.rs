//! The whole pipeline as real processes, under signals and a bad network, held against a ledger of what was said.
//!
//! The services are processes of their own that run what their binaries run; Kafka is librdkafka's in-process cluster, the
//! tables are the emulator's over HTTP, and the cache is a Redis server where one is installed. Between them and the
//! services stand proxies, so that each dependency can go away without its contents.

mod answers;
mod campaign;
mod command;
pub(crate) mod engines;
mod figures;
pub(crate) mod fleet;
pub(crate) mod laws;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod operator;
mod proxy;
pub(crate) mod recounts;
mod redis;
mod schedule;
pub(crate) mod service;
pub(crate) mod stage;

pub use campaign::{Campaign, Extent, Under, fight};
pub use command::Attack;
pub use service::Service;
