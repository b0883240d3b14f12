//! The whole pipeline as real processes, under signals and a bad network, held against a ledger of what was said.
//!
//! The services are processes of their own that run what their binaries run; Kafka is librdkafka's in-process cluster, the
//! tables are the emulator's over HTTP, and the cache is a Redis server where one is installed. Between them and the
//! services stand proxies, so that each dependency can go away without its contents.

pub(crate) mod campaign;
pub(crate) mod engines;
pub(crate) mod fleet;
pub(crate) mod laws;
pub(crate) mod ledger;
mod load;
mod proxy;
pub(crate) mod stage;

pub use campaign::{Attack, Campaign, Extent, fight};
pub use fleet::Service;
pub use stage::{Ground, Under};
