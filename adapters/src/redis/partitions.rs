//! The cache of counters in Redis: their values beside the standing of their partition of `changes`, which says up to
//! when all changes are counted. All keys of a partition are in one hash slot, so one command reads or writes them
//! together.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value as Answer, cmd};
use tally_core::cached::{Cache, Entry, FillToken, Got, Held, StandingAt, TakeOver, TakeOverNumber, Told, Value};
use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::ids::{CachePrefix, CounterId};
use tally_core::ports::Outcome;
use tally_service::{Chance, Seldom};

use super::link::Link;
use super::scripts::{BEGIN, FILL, Script, TAKE_OVER, TELL};
use super::{Settings, fault, text};

/// How many values one script writes: meanwhile the server answers nothing else.
const VALUES: usize = 256;

/// How long the right to fill a counter lasts.
const FILLING: Duration = Duration::from_secs(5);

/// The time between two warnings of another deployment.
const WARNED: Duration = Duration::from_secs(60);

/// The cache by partitions. Clones share its connections.
#[derive(Clone)]
pub struct PartitionCache {
    link: Link,
    prefix: CachePrefix,
    ttl: Duration,
    chance: Chance,
    foreign: Arc<ForeignStandings>,
}

impl PartitionCache {
    /// A cache that connects when it is first used, and again whenever it has to. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// A malformed address.
    pub fn new(settings: &Settings) -> Outcome<Self> {
        Ok(Self {
            link: Link::new(settings)?,
            prefix: settings.prefix.clone(),
            ttl: settings.ttl,
            chance: Chance::from_entropy(),
            foreign: Arc::default(),
        })
    }

    async fn call(&self, script: &Script, keys: Vec<String>, args: Vec<String>) -> Outcome<Answer> {
        self.answer(|with_text| script.call(&keys, &args, with_text)).await
    }

    async fn answer(&self, command: impl Fn(bool) -> Cmd) -> Outcome<Answer> {
        self.link.answer(command).await.map_err(|error| fault(&error))
    }

    /// Returns the lifetime of a value: values that are written together do not expire together.
    fn lifetime(&self) -> String {
        millis(spread(self.ttl, &self.chance))
    }
}

impl Settings {
    /// Opens this cache, as [`PartitionCache::new`] does.
    pub fn open(&self) -> Outcome<Arc<dyn Cache>> {
        Ok(Arc::new(PartitionCache::new(self)?))
    }
}

#[async_trait]
impl Cache for PartitionCache {
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got> {
        let values = counters.iter().map(|counter| self.prefix.value(partition, counter));
        let keys: Vec<String> = std::iter::once(self.prefix.standing(partition)).chain(values).collect();
        let Answer::Array(found) = self.answer(|_| cmd("MGET").arg(&keys).take()).await? else {
            return Err(unexpected());
        };
        let mut found = found.iter().map(text);
        let held: Option<Held> = found.next().flatten().and_then(|text| text.parse().ok());
        let value = |text: Option<&str>| match text?.parse() {
            Ok(Entry::Value(number, value)) if number == held.as_ref()?.taken.number => Some(value),
            _ => None,
        };
        let values = found.map(value).collect();
        let (taken, stated) = held.map(|held| (held.taken, held.stated)).unzip();
        Ok(Got { taken, stated, values })
    }

    /// Safe to repeat: see the port.
    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>> {
        let keys = vec![self.prefix.standing(partition), self.prefix.value(partition, counter)];
        let nonce = u128::from(self.chance.token()) << 64 | u128::from(self.chance.token());
        let answer = self.call(&BEGIN, keys, vec![format!("{nonce:032x}"), millis(FILLING)]).await?;
        Ok(text(&answer).and_then(|token| token.parse().ok()))
    }

    /// Safe to repeat: the first copy takes the token's place.
    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool> {
        let args = vec![token.to_string(), token.filled(*value).to_string(), self.lifetime()];
        let answer = self.call(&FILL, vec![self.prefix.value(partition, counter)], args).await?;
        Ok(answer == Answer::Int(1))
    }

    /// Safe to repeat: see the port.
    async fn take_over(&self, partition: u32, of: &DeploymentId, stated: &StandingAt) -> Outcome<Option<TakeOver>> {
        let number = TakeOverNumber(self.chance.token());
        let (place, own) = (stated.at.to_string(), of.0.to_string());
        let args = vec![number.to_string(), own, place, stated.to_string(), millis(self.ttl)];
        let answer = self.call(&TAKE_OVER, vec![self.prefix.standing(partition)], args).await?;
        let before = text(&answer);
        if let Some(other) = before.filter(|before| **before != *of.0) {
            self.foreign.warn(partition, other, of);
        }
        Ok(before.map(|_| TakeOver::new(number)))
    }

    /// Safe to repeat: a copy finds its own sequence number, or a later one.
    async fn tell(
        &self,
        partition: u32,
        take_over: &mut TakeOver,
        values: &[(CounterId, Value)],
        stated: Option<&StandingAt>,
    ) -> Outcome<Told> {
        let mut written = 0;
        let mut rest = values;
        loop {
            let (some, others) = rest.split_at(rest.len().min(VALUES));
            rest = others;
            let stamp = take_over.stamp();
            let stated = stated.filter(|_| rest.is_empty()).map(ToString::to_string).unwrap_or_default();
            let mut keys = vec![self.prefix.standing(partition)];
            let [number, from, to] = [stamp.number.to_string(), stamp.from.to_string(), stamp.to.to_string()];
            let mut args = vec![number, from, to, millis(self.ttl), stated];
            for (counter, value) in some {
                keys.push(self.prefix.value(partition, counter));
                args.extend([
                    Entry::Value(stamp.number, *value).to_string(),
                    value.version.to_string(),
                    self.lifetime(),
                ]);
            }
            match self.call(&TELL, keys, args).await? {
                Answer::Int(-1) => return Ok(Told::Lost),
                Answer::Int(replaced) => written += usize::try_from(replaced).map_err(|_| unexpected())?,
                _ => return Err(unexpected()),
            }
            take_over.answered(stamp);
            if rest.is_empty() {
                return Ok(Told::Written(written));
            }
        }
    }
}

/// Warns that another deployment keeps its counts under the same keys, once a minute at most.
#[derive(Debug, Default)]
pub struct ForeignStandings(Seldom);

impl ForeignStandings {
    /// Warns of a standing of the deployment `other`, unless there was a warning less than a minute ago.
    pub fn warn(&self, partition: u32, other: &str, own: &DeploymentId) {
        if self.0.is_due(WARNED) {
            tracing::warn!(
                partition,
                other,
                own = &*own.0,
                "the cache has counts of another deployment, which are not used; if it is alive, each takes the cache away \
                 from the other: give one of them a table prefix or a Redis of its own"
            );
        }
    }
}

fn millis(span: Duration) -> String {
    span.as_millis().max(1).to_string()
}

fn unexpected() -> Fault {
    Fault::Transient("redis: an answer of another kind".to_owned())
}

/// Returns a span between three quarters of `span` and all of it.
fn spread(span: Duration, chance: &Chance) -> Duration {
    span - chance.up_to(span / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_spread_over_the_last_quarter() {
        let (chance, ttl) = (Chance::seeded(1), Duration::from_secs(100));
        let spans: Vec<_> = (0..1000).map(|_| spread(ttl, &chance)).collect();
        assert!(spans.iter().all(|span| (ttl * 3 / 4..=ttl).contains(span)));
        let early = spans.iter().filter(|span| **span < ttl * 7 / 8).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the earlier half");
    }
}
