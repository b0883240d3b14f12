//! Waits, before an erasure, until the rows have what was in the topics when it began. The erasure would not find a
//! like that is no row yet, and the consumer would write it afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use tally_core::definitions::Definition;
use tally_core::ports::TopicReader as _;

use crate::desk::Desk;
use crate::health::say;
use crate::said::{counted, ranges};
use crate::verbs::topic::{Part, Seen};

/// How often the positions of the rows are read, and how often progress is printed.
const LOOK: Duration = Duration::from_secs(1);
const SHOWN: Duration = Duration::from_secs(30);

/// The topics of the sets: where each ended at the beginning, and how far its rows have come.
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

    /// Says how many records are not in the rows yet, a line for each topic that has some.
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

    /// Waits until the rows have everything that was in the topics at the beginning.
    ///
    /// # Errors
    /// A partition with such records is paused or has stopped, or it takes longer than `--patience`.
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

    /// Returns whether records wait that no consumer reads until an operator does something.
    fn stands_still(&self) -> bool {
        let stands = |seen: &Seen, part: &Part| seen.is_paused() || matches!(part.start, Some(Err(_)));
        self.0.iter().any(|seen| seen.parts.iter().any(|part| seen.lag(part) > 0 && stands(seen, part)))
    }
}
