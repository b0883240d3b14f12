//! The cache over Redis or Valkey, one server or a cluster, by a few fixed scripts and `MGET`. The keys of each command
//! are in one hash slot.
//!
//! Keys and texts are those of `tally_core::cached`, and the scripts follow its rules: no late or repeated write brings
//! an older version back.

mod foreign;
mod link;
mod partitions;
mod scripts;
mod settings;
mod silence;

use redis::{IntoConnectionInfo as _, RedisError, Value};
use tally_core::fault::Fault;

pub use self::foreign::ForeignStandings;
pub use self::partitions::PartitionCache;
pub use self::settings::Settings;

/// Checks that `url` is the address of a server or of a node.
///
/// # Errors
/// What it has to look like; never the URL, which may carry a password.
pub fn check_node(url: &str) -> Result<(), &'static str> {
    let is_node = ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme));
    if is_node && url.into_connection_info().is_ok() { Ok(()) } else { Err("not a URL such as redis://127.0.0.1:6379") }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    }
}

/// Every error of the cache is transient: no answer depends on the cache, and stopping for it would help nothing.
fn fault(error: &RedisError) -> Fault {
    Fault::Transient(format!("redis: {error}"))
}
