//! The cache over Redis or Valkey, alone or as a cluster: two fixed scripts, and commands that both know.
//!
//! A key names deployment, counter and post. It holds a count in the one form that `tally_core::served` writes, or `0:` and
//! a token while an API fills it. A script replaces a count only where `Served::replaces` says so: a late or repeated
//! write takes no version back.

mod link;
mod partitions;
mod scripts;
mod settings;
mod silence;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, IntoConnectionInfo as _, RedisError, Value, cmd};
use tally_core::fault::Fault;
use tally_core::ids::{CachePrefix, CounterId};
use tally_core::ports::{Cache as CachePort, Cached, FillToken, Outcome};
use tally_core::served::Served;

use self::link::Link;
pub use self::partitions::PartitionCache;
use self::scripts::{FILL, Script, UPDATE};
pub use self::settings::Settings;

/// Checks that `url` is the address of a server or of a node.
///
/// # Errors
/// What it has to look like; never the URL, which may carry a password.
pub fn check_node(url: &str) -> Result<(), &'static str> {
    let is_node = ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme));
    if is_node && url.into_connection_info().is_ok() { Ok(()) } else { Err("not a URL such as redis://127.0.0.1:6379") }
}

/// What a key under filling begins with: no count's format is 0.
const FILLING: &str = "0:";

/// The cache. Clones share its connections.
#[derive(Clone)]
pub struct Cache {
    link: Link,
    prefix: CachePrefix,
    ttl: Duration,
    fill: Duration,
    tokens: Tokens,
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

    fn token(&self) -> FillToken {
        FillToken(format!("{FILLING}{:032x}-{}", self.process, self.next()))
    }

    /// Between three quarters of `span` and all of it, so that keys written together do not expire together.
    fn spread(&self, span: Duration) -> Duration {
        // Steps of the golden ratio never come close to where one was lately.
        let step = (self.next().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u32;
        span - span / 4 * step / (1 << 16)
    }
}

impl Cache {
    /// A cache that connects when it is first used, and again whenever it has to. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// A malformed address.
    pub fn new(settings: &Settings) -> Outcome<Self> {
        let Settings { ttl, fill, .. } = *settings;
        let prefix = settings.prefix.clone();
        Ok(Self { link: Link::new(settings)?, prefix, ttl, fill, tokens: Tokens::new() })
    }

    fn key(&self, counter: &CounterId) -> String {
        self.prefix.key(counter)
    }

    fn lifetime(&self) -> String {
        self.tokens.spread(self.ttl).as_millis().max(1).to_string()
    }

    /// The commands' answers, in their order.
    async fn answers(&self, commands: &[Command<'_>]) -> Outcome<Vec<Value>> {
        self.link.answers(commands).await.map_err(|error| fault(&error))
    }
}

/// One command, whose keys are in one hash slot, before it is spelled out.
enum Command<'a> {
    Plain { name: &'static str, key: String, args: Vec<String> },
    Call { script: &'a Script, keys: Vec<String>, args: Vec<String> },
}

impl Command<'_> {
    /// The first key.
    fn key(&self) -> &str {
        match self {
            Self::Plain { key, .. } => key,
            Self::Call { keys, .. } => keys.first().map_or("", String::as_str),
        }
    }

    /// Scripts by their texts or by their digests.
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

#[async_trait]
impl CachePort for Cache {
    async fn get(&self, counters: &[CounterId]) -> Outcome<Vec<Cached>> {
        let get = |counter| Command::Plain { name: "GET", key: self.key(counter), args: Vec::new() };
        let found = self.answers(&counters.iter().map(get).collect::<Vec<_>>()).await?;
        Ok(found.iter().map(cached).collect())
    }

    /// Safe to repeat: a count does not replace itself.
    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize> {
        let update = |(counter, served): &(CounterId, Served)| Command::Call {
            script: &UPDATE,
            keys: vec![self.key(counter)],
            args: vec![
                served.to_string(),
                served.version.to_string(),
                u8::from(served.exact).to_string(),
                served.as_of.to_string(),
                self.lifetime(),
            ],
        };
        let replaced = self.answers(&values.iter().map(update).collect::<Vec<_>>()).await?;
        Ok(replaced.iter().filter(|answer| **answer == Value::Int(1)).count())
    }

    /// Safe to repeat: a copy of a request that got through finds its own token and is refused; the token then expires
    /// unused.
    async fn begin_fill(&self, counter: &CounterId) -> Outcome<Option<FillToken>> {
        let token = self.tokens.token();
        let lifetime = self.fill.as_millis().max(1).to_string();
        let args = vec![token.0.clone(), "NX".to_owned(), "PX".to_owned(), lifetime];
        let answers = self.answers(&[Command::Plain { name: "SET", key: self.key(counter), args }]).await?;
        Ok((answers.first() == Some(&Value::Okay)).then_some(token))
    }

    /// Safe to repeat: the first copy takes the token's place.
    async fn fill(&self, counter: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool> {
        let args = vec![token.0.clone(), value.to_string(), self.lifetime()];
        let answers = self.answers(&[Command::Call { script: &FILL, keys: vec![self.key(counter)], args }]).await?;
        Ok(answers.first() == Some(&Value::Int(1)))
    }
}

/// What a key holds. A count of a form that this version does not know is a miss.
fn cached(value: &Value) -> Cached {
    text(value).and_then(|text| text.parse().ok()).map_or(Cached::Miss, Cached::Hit)
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
    fn no_two_tokens_are_the_same_and_none_is_a_count() {
        let (one, other) = (Tokens::new(), Tokens::new());
        let tokens: std::collections::BTreeSet<_> = (0..100).flat_map(|_| [one.token().0, other.token().0]).collect();
        assert_eq!(tokens.len(), 200);
        for token in tokens {
            assert_eq!(cached(&Value::BulkString(token.into_bytes())), Cached::Miss);
        }
    }

    #[test]
    fn lifetimes_are_spread_over_the_last_quarter() {
        let (tokens, ttl) = (Tokens::new(), Duration::from_secs(100));
        let spans: Vec<_> = (0..1000).map(|_| tokens.spread(ttl)).collect();
        assert!(spans.iter().all(|span| (ttl * 3 / 4..=ttl).contains(span)));
        let early = spans.iter().filter(|span| **span < ttl * 7 / 8).count();
        assert!((450..550).contains(&early), "{early} of 1000 in the earlier half");
    }

    #[test]
    fn a_text_that_is_no_count_is_a_miss() {
        let served = Served { version: 3, likes: 2, ..Served::default() };
        let holds = |text: &str| cached(&Value::BulkString(text.as_bytes().to_vec()));
        assert_eq!(holds(&served.to_string()), Cached::Hit(served));
        for text in ["", "0:token", "2:3:2:1:0", "1:x", "\u{feff}1:3:2:0:0"] {
            assert_eq!(holds(text), Cached::Miss, "{text:?}");
        }
        assert_eq!(cached(&Value::BulkString(vec![0xff, 0xfe])), Cached::Miss);
        assert_eq!(cached(&Value::Nil), Cached::Miss);
    }
}
