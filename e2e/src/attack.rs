//! Attacks the whole pipeline, as real processes, with signals and a bad network, and compares the result with a ledger of all
//! events.
//!
//! The services are processes that run what their binaries run. Kafka is librdkafka's in-process cluster, the tables are the
//! emulator's over HTTP, and the cache is a Redis server if one is installed. Between them and the services are proxies, so
//! that each dependency can become unavailable without losing its contents.

pub(crate) mod campaign;
pub(crate) mod engines;
pub(crate) mod fleet;
pub(crate) mod laws;
pub(crate) mod ledger;
pub(crate) mod load;
mod proxy;
pub(crate) mod report;
pub(crate) mod stage;

pub use campaign::{Attack, Campaign, Extent, fight};
pub use fleet::called;
pub use stage::{Ground, Under};
