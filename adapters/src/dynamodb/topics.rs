//! What consumers have stored of the topics that events come from: for each partition a time `safe_at`, by which all
//! events that Kafka had acknowledged are rows. The API computes from it up to when an answer counts everything
//! (`as_of`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tally_core::changes::Standing;
use tally_core::definitions::Definitions;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::register::SafeTimes;
use tally_core::served;
use tally_core::time::UnixMillis;
use tally_core::topic::TopicId;

use super::claims::Claims;

/// What consumers have stored of every topic, as it was last read.
#[derive(Clone, Debug)]
pub struct Topics {
    defined: Definitions,
    /// The topic of counters whose definition names none.
    usual: Arc<str>,
    of: BTreeMap<String, Partitions>,
    /// The topics that no consumer has begun with.
    missing: BTreeSet<String>,
}

/// The partitions of one generation of a topic.
#[derive(Clone, Debug)]
struct Partitions {
    topic: TopicId,
    generation: u16,
    safe: Vec<SafeTimes>,
}

impl Topics {
    /// Before anything was read.
    pub fn new(usual: &str) -> Self {
        Self { defined: Definitions::default(), usual: usual.into(), of: BTreeMap::new(), missing: BTreeSet::new() }
    }

    /// A topic of one partition whose events are in the rows at any time, for tests.
    pub fn of_one() -> Self {
        let mut times = SafeTimes::default();
        times.note(UnixMillis(0), Some(UnixMillis::MAX));
        let partitions = Partitions { topic: TopicId("t".into()), generation: 1, safe: vec![times] };
        Self { of: [("likes".to_owned(), partitions)].into(), ..Self::new("likes") }
    }

    /// Returns the partitions that a counter's events may come from: for a set that of its subject, unless a partition
    /// has had misrouted events; otherwise all. `None` where they are not known.
    pub fn of(&self, id: &CounterId) -> Option<&[SafeTimes]> {
        let definition = self.defined.iter().find(|definition| definition.name == id.name)?;
        let safe = &self.of.get(definition.topic.as_deref().unwrap_or(&self.usual))?.safe;
        Some(served::sources(id, safe)).filter(|sources| !sources.is_empty())
    }

    /// Returns the `as_of` of counts with this standing: all events that Kafka had acknowledged by then, in any topic,
    /// are in.
    pub fn by(&self, standing: &Standing) -> Option<UnixMillis> {
        let is_known = !self.of.is_empty() && self.missing.is_empty();
        served::as_of(standing, self.all()).filter(|_| is_known)
    }

    /// Returns every partition of the known topics.
    pub fn all(&self) -> impl Iterator<Item = &SafeTimes> {
        self.of.values().flat_map(|partitions| &partitions.safe)
    }

    /// Reads what is stored now, and adds what was known before. Forgets what was known of an earlier generation of a
    /// topic: a key may have hashed to another partition then.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn read(&self, claims: &Claims, defined: Definitions) -> Outcome<Self> {
        let mut names: Vec<&str> = defined.iter().map(|it| it.topic.as_deref().unwrap_or(&self.usual)).collect();
        names.sort_unstable();
        names.dedup();
        let (mut of, mut missing) = (BTreeMap::new(), BTreeSet::new());
        for name in names {
            let Some(topic) = claims.topic(name).await? else {
                missing.insert(name.to_owned());
                continue;
            };
            let (id, generation) = (topic.id.clone(), topic.current().number);
            let read = claims.all(name, topic.current().partitions()).await?;
            let before = self.of.get(name).filter(|before| before.topic == id && before.generation == generation);
            let mut safe = before.map_or_else(|| vec![SafeTimes::default(); read.len()], |before| before.safe.clone());
            for (times, claim) in safe.iter_mut().zip(&read) {
                let kept = claim.kept.iter().filter(|kept| kept.topic == id && kept.generation == generation);
                kept.for_each(|kept| times.take(kept));
            }
            of.insert(name.to_owned(), Partitions { topic: id, generation, safe });
        }
        for topic in missing.difference(&self.missing) {
            tracing::warn!(topic, "no consumer has begun with this topic: no count of its events is exact");
        }
        Ok(Self { of, usual: Arc::clone(&self.usual), defined, missing })
    }
}

impl Default for Topics {
    fn default() -> Self {
        Self::new("")
    }
}
