//! The cache by partitions of `changes`: all keys of a partition are in one hash slot, and each call is one command there.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value as Answer;
use tally_core::cached::{Cache, Entry, FillToken, Got, Held, StandingAt, TakeOver, TakeOverNumber, Told, Value};
use tally_core::fault::Fault;
use tally_core::ids::{CachePrefix, CounterId};
use tally_core::ports::Outcome;

use super::link::Link;
use super::scripts::{BEGIN, FILL, Script, TAKE_OVER, TELL};
use super::{Command, Settings, Tokens, fault, text};

/// Values that one script writes: a server answers nothing else meanwhile.
const VALUES: usize = 256;

/// The cache by partitions. Clones share its connections.
#[derive(Clone)]
pub struct PartitionCache {
    link: Link,
    prefix: CachePrefix,
    ttl: Duration,
    fill: Duration,
    tokens: Tokens,
}

impl PartitionCache {
    /// A cache that connects when it is first used, and again whenever it has to. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// A malformed address.
    pub fn new(settings: &Settings) -> Outcome<Self> {
        let Settings { ttl, fill, .. } = *settings;
        let prefix = settings.prefix.clone();
        Ok(Self { link: Link::new(settings)?, prefix, ttl, fill, tokens: Tokens::new() })
    }

    async fn call(&self, script: &Script, keys: Vec<String>, args: Vec<String>) -> Outcome<Answer> {
        self.answer(Command::Call { script, keys, args }).await
    }

    async fn answer(&self, command: Command<'_>) -> Outcome<Answer> {
        self.link.answer(&command).await.map_err(|error| fault(&error))
    }

    /// The lifetime of a value: values that are written together do not expire together.
    fn lifetime(&self) -> String {
        millis(self.tokens.spread(self.ttl))
    }
}

#[async_trait]
impl Cache for PartitionCache {
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got> {
        let args = counters.iter().map(|counter| self.prefix.value(partition, counter)).collect();
        let command = Command::Plain { name: "MGET", key: self.prefix.standing(partition), args };
        let Answer::Array(found) = self.answer(command).await? else { return Err(unexpected()) };
        let mut found = found.iter().map(text);
        let held: Option<Held> = found.next().flatten().and_then(|text| text.parse().ok());
        let value = |text: Option<&str>| match text?.parse() {
            Ok(Entry::Value(number, value)) if number == held.as_ref()?.number => Some(value),
            _ => None,
        };
        let values = found.map(value).collect();
        Ok(Got { values, stated: held.map(|held| held.stated) })
    }

    /// Safe to repeat: see the port.
    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>> {
        let keys = vec![self.prefix.standing(partition), self.prefix.value(partition, counter)];
        let nonce = self.tokens.nonce();
        let answer = self.call(&BEGIN, keys, vec![format!("{nonce:032x}"), millis(self.fill)]).await?;
        Ok(text(&answer).and_then(|token| token.parse().ok()))
    }

    /// Safe to repeat: the first copy takes the token's place.
    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool> {
        let args = vec![token.to_string(), token.filled(*value).to_string(), self.lifetime()];
        let answer = self.call(&FILL, vec![self.prefix.value(partition, counter)], args).await?;
        Ok(answer == Answer::Int(1))
    }

    /// Safe to repeat: see the port.
    async fn take_over(&self, partition: u32, stated: &StandingAt) -> Outcome<Option<TakeOver>> {
        let number = TakeOverNumber(RandomState::new().hash_one(()));
        let args = vec![number.to_string(), stated.at.to_string(), stated.to_string(), millis(self.ttl)];
        let answer = self.call(&TAKE_OVER, vec![self.prefix.standing(partition)], args).await?;
        Ok((answer == Answer::Int(1)).then(|| TakeOver::new(number)))
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

fn millis(span: Duration) -> String {
    span.as_millis().max(1).to_string()
}

fn unexpected() -> Fault {
    Fault::Transient("redis: an answer of another kind".to_owned())
}
