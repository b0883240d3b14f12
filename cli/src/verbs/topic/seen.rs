//! Looks at a topic of events for the verbs that show or change it: what is stored about it, what Kafka says, and where
//! a consumer that takes a partition over would begin, or why it would stop.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use tally_adapters::dynamodb::Usual;
use tally_core::ports::TopicReader;
use tally_core::register::{Claim, Found, Kept, Standstill, Start, Topic, last_read_in};
use tally_core::topic::{Log, Offset, Partition, TopicId};

use crate::desk::Desk;

/// How long consumers keep tombstones by default. Here this decides only what is called a replay.
const TOMBSTONES: Duration = Duration::from_secs(86_400);

/// A topic and its partitions, as they were seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    /// What is stored about the topic; `None` before a consumer has read it.
    pub(crate) topic: Option<Topic>,
    pub(crate) usual: Usual,
    /// Why no consumer may write its events, whatever the partition.
    pub(crate) misfit: Option<Standstill>,
    /// The id that the topic has in Kafka.
    pub(crate) id: TopicId,
    pub(crate) parts: Vec<Part>,
}

/// A partition, as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) partition: Partition,
    pub(crate) log: Log,
    pub(crate) claim: Claim,
    /// The offset that the consumers' group has committed.
    pub(crate) committed: Option<Offset>,
    /// Where a consumer would begin if the topic were not paused, or why it would stop; `None` if it would begin with the topic.
    pub(crate) start: Option<Result<Start, Standstill>>,
}

/// A reason for which consumers stop, and the partitions that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    pub(crate) name: &'static str,
    pub(crate) partitions: Vec<u32>,
    /// What it is, and what to do.
    pub(crate) detail: String,
}

impl Seen {
    /// Looks at the topic `name`. It reads committed offsets first, then claims, and the ends of the logs last: so what
    /// follows never seems to be ahead.
    pub(crate) async fn look(desk: &Desk, name: &str) -> anyhow::Result<Self> {
        let reader = desk.consumers_of(name)?;
        let looking = || format!("cannot look at `{name}`");
        ensure!(reader.exists().await.with_context(looking)?, "there is no topic `{name}`");
        let topic = desk.claims.topic(name).await.context("cannot read what is known of the topic")?;
        let usual = desk.checkpoints.usual().await.context("cannot read the counters")?;
        let misfit = usual.misfit(name);
        let mut stored = BTreeMap::new();
        for (partition, _) in reader.logs().await.with_context(looking)? {
            let committed = reader.bookmark(&partition).await.context("cannot read what the group has committed")?;
            let claim = desk.claims.read(&partition).await.context("cannot read the claims")?;
            stored.insert(partition, (committed, claim));
        }
        let logs = reader.logs().await.with_context(looking)?;
        let id = logs.first().with_context(|| format!("`{name}` has no partitions"))?.1.topic.clone();
        // A partition that was added just now is seen by the next look.
        let known = logs.iter().filter(|(partition, _)| stored.contains_key(partition)).count();
        let partitions = u32::try_from(known).unwrap_or(u32::MAX);
        let going_on = topic.as_ref().map(|topic| Topic { is_paused: false, ..topic.clone() });
        let mut parts = Vec::new();
        for (partition, log) in logs {
            let Some((committed, claim)) = stored.remove(&partition) else { continue };
            let last = last_read_in(&claim, &log).map(|last| last.at);
            // The fingerprint of the record that is where the one read last was.
            let there = reader.fingerprint(&partition, last).await.with_context(looking)?;
            let start = match (&misfit, &going_on) {
                (Some(misfit), _) => Some(Err(misfit.clone())),
                (None, None) => None,
                (None, Some(topic)) => {
                    let (claim, log, index) = (&claim, &log, partition.index);
                    let found = Found { claim, topic, index, log, partitions, committed, there };
                    Some(found.start(desk.claims.time().latest, TOMBSTONES))
                }
            };
            parts.push(Part { partition, log, claim, committed, start });
        }
        Ok(Self { name: name.to_owned(), topic, usual, misfit, id, parts })
    }

    /// Reads again how far the rows have come and whether the topic is paused, but not the ends of the logs nor
    /// `start`.
    pub(crate) async fn look_at_rows(&mut self, desk: &Desk) -> anyhow::Result<()> {
        self.topic = desk.claims.topic(&self.name).await.context("cannot read what is known of the topic")?;
        for part in &mut self.parts {
            part.claim = desk.claims.read(&part.partition).await.context("cannot read the claims")?;
        }
        Ok(())
    }

    /// Returns how many partitions the topic has in Kafka.
    pub(crate) fn partitions(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.topic.as_ref().is_some_and(|topic| topic.is_paused)
    }

    /// Returns the problems of the topic, each once.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        for part in &self.parts {
            let Some(Err(standstill)) = &part.start else { continue };
            let (name, detail) = (standstill.name(), standstill.to_string());
            match problems.iter_mut().find(|problem| problem.detail == detail) {
                Some(problem) => problem.partitions.push(part.partition.index),
                None => problems.push(Problem { name, partitions: vec![part.partition.index], detail }),
            }
        }
        problems
    }

    /// Returns what is stored about the partition's rows, if it is about the topic that Kafka has now.
    pub(crate) fn kept<'a>(&self, part: &'a Part) -> Option<&'a Kept> {
        part.claim.kept.as_ref().filter(|kept| kept.topic == self.id)
    }

    /// Returns how many records of the partition are not known to be finished yet.
    pub(crate) fn lag(&self, part: &Part) -> u64 {
        let begin = || self.topic.as_ref().and_then(|topic| topic.begin_of(part.partition.index));
        let safe = self.kept(part).map(|kept| kept.safe).or_else(begin).unwrap_or(part.log.start);
        part.log.end.0.saturating_sub(safe.0)
    }

    /// Returns how many records of the partition a consumer that started now would read. Where its group was set back,
    /// it reads finished ones again.
    pub(crate) fn unread(&self, part: &Part) -> u64 {
        let begin = part.start.as_ref().and_then(|start| start.as_ref().ok()).map(|start| start.at);
        let again = begin.map_or(0, |begin| part.log.end.0.saturating_sub(begin.0));
        self.lag(part).max(again)
    }
}

/// Sets the offset that the consumers' group has committed of a partition. Safe to repeat.
///
/// # Errors
/// The group has members: then Kafka accepts offsets only from them.
pub(super) async fn commit(desk: &Desk, reader: &dyn TopicReader, of: &Partition, to: Offset) -> anyhow::Result<()> {
    let why = || format!("cannot set what group {} has committed of {of}: are all consumers stopped", desk.group);
    reader.mark(of, to).await.with_context(why)
}
