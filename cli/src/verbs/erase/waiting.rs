//! What waits in Kafka when an erasure begins: a like that is no row yet would not be found, and would be there afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use tally_core::definitions::Definition;
use tally_core::ports::TopicReader as _;

use crate::desk::Desk;
use crate::health::say;
use crate::said::{counted, ranges};
use crate::verbs::topic::{Part, Seen};

/// How often rows are looked at, and how often it is said that they are waited for.
const LOOK: Duration = Duration::from_secs(1);
const SHOWN: Duration = Duration::from_secs(30);

/// The topics of sets, with where they ended when they were looked at, and up to where they are in the rows.
pub(super) struct Waiting(Vec<Seen>);

impl Waiting {
    pub(super) async fn look(desk: &Desk, sets: &[Definition]) -> anyhow::Result<Self> {
        let topics: BTreeSet<&str> = sets.iter().map(|set| set.topic.as_deref().unwrap_or(&desk.topic)).collect();
        let mut seen = Vec::new();
        for topic in topics {
            let exists = desk.consumers_of(topic)?.exists().await;
            // Nothing waits in a topic that was never created.
            if exists.with_context(|| format!("cannot look at `{topic}`"))? {
                seen.push(Seen::look(desk, topic).await?);
            }
        }
        Ok(Self(seen))
    }

    /// What is not in the rows, a line for each topic.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |seen: &Seen| {
            let parts: Vec<&Part> = seen.parts.iter().filter(|part| seen.lag(part) > 0).collect();
            let count = parts.iter().map(|part| seen.lag(part)).sum();
            let partitions = ranges(parts.iter().map(|part| part.partition.index));
            let halted = parts.iter().find_map(|part| part.start.as_ref()?.as_ref().err());
            let why = match halted {
                Some(standstill) => format!(": {standstill}"),
                None if seen.is_paused() => ": paused, tally resume consumer".to_owned(),
                None => String::new(),
            };
            (count > 0)
                .then(|| format!("{}/{partitions}: {} not in the rows yet{why}", seen.name, counted(count, "record")))
        };
        self.0.iter().filter_map(line).collect()
    }

    /// Waits until rows have everything that was in the topics.
    ///
    /// # Errors
    /// A partition stands still; it takes longer than the operator's patience.
    pub(super) async fn until_over(mut self, desk: &Desk) -> anyhow::Result<()> {
        let began = desk.clock.reading().at;
        let mut shown = None;
        loop {
            let lines = self.lines();
            if lines.is_empty() {
                return Ok(());
            }
            let (lines, waited) = (lines.join("; "), desk.clock.reading().at.saturating_sub(began));
            if self.stands_still() || waited >= desk.patience {
                bail!("nothing was erased: likes that wait in Kafka would come back: {lines}");
            }
            if shown.is_none_or(|shown| waited.saturating_sub(shown) >= SHOWN) {
                shown = Some(waited);
                say(&format!("waiting for the consumers: {lines}"));
            }
            desk.clock.sleep(LOOK).await;
            for seen in &mut self.0 {
                seen.look_at_rows(desk).await?;
            }
        }
    }

    /// Whether something waits that no consumer reads before an operator has looked.
    fn stands_still(&self) -> bool {
        let stands = |seen: &Seen, part: &Part| seen.is_paused() || matches!(part.start, Some(Err(_)));
        self.0.iter().any(|seen| seen.parts.iter().any(|part| seen.lag(part) > 0 && stands(seen, part)))
    }
}
