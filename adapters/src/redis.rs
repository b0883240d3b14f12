//! The cache over Redis or Valkey, alone or as a cluster: a few fixed scripts, and `MGET`. Each call is one command, whose keys
//! are in one hash slot.
//!
//! Keys and texts are those of `tally_core::cached`, and the scripts follow its rules: a late or repeated write takes no version
//! back.

mod link;
mod partitions;
mod scripts;
mod settings;
mod silence;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, IntoConnectionInfo as _, RedisError, Value, cmd};
use tally_core::fault::Fault;

pub use self::partitions::PartitionCache;
use self::scripts::Script;
pub use self::settings::Settings;

/// Checks that `url` is the address of a server or of a node.
///
/// # Errors
/// What it has to look like; never the URL, which may carry a password.
pub fn check_node(url: &str) -> Result<(), &'static str> {
    let is_node = ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme));
    if is_node && url.into_connection_info().is_ok() { Ok(()) } else { Err("not a URL such as redis://127.0.0.1:6379") }
}

/// Draws tokens that no other process draws.
#[derive(Clone, Debug)]
struct Tokens {
    process: u128,
    drawn: Arc<AtomicU64>,
}

impl Tokens {
    fn new() -> Self {
        let draw = || u128::from(RandomState::new().build_hasher().finish());
        Self { process: draw() << 64 | draw(), drawn: Arc::default() }
    }

    fn next(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that no other fill has.
    fn nonce(&self) -> u128 {
        self.process.wrapping_add(u128::from(self.next()))
    }

    /// Between three quarters of `span` and all of it, so that keys written together do not expire together.
    fn spread(&self, span: Duration) -> Duration {
        // Steps of the golden ratio never come close to where one was lately.
        let step = (self.next().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u32;
        span - span / 4 * step / (1 << 16)
    }
}

/// One command, whose keys are in one hash slot, before it is spelled out.
enum Command<'a> {
    Plain { name: &'static str, key: String, args: Vec<String> },
    Call { script: &'a Script, keys: Vec<String>, args: Vec<String> },
}

impl Command<'_> {
    /// The command as it is sent: a script by its text or by its digest.
    fn spelled(&self, with_text: bool) -> Cmd {
        match self {
            Self::Plain { name, key, args } => {
                let mut plain = cmd(name);
                plain.arg(key).arg(args);
                plain
            }
            Self::Call { script, keys, args } => script.call(keys, args, with_text),
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Every error of the cache is transient: no answer depends on the cache, and stopping for it would help nothing.
fn fault(error: &RedisError) -> Fault {
    Fault::Transient(format!("redis: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_nonces_are_the_same() {
        let (one, other) = (Tokens::new(), Tokens::new());
        let nonces: std::collections::BTreeSet<_> = (0..100).flat_map(|_| [one.nonce(), other.nonce()]).collect();
        assert_eq!(nonces.len(), 200);
    }

    #[test]
    fn lifetimes_are_spread_over_the_last_quarter() {
        let (tokens, ttl) = (Tokens::new(), Duration::from_secs(100));
        let spans: Vec<_> = (0..1000).map(|_| tokens.spread(ttl)).collect();
        assert!(spans.iter().all(|span| (ttl * 3 / 4..=ttl).contains(span)));
        let early = spans.iter().filter(|span| **span < ttl * 7 / 8).count();
        assert!((450..550).contains(&early), "{early} of 1000 in the earlier half");
    }
}
