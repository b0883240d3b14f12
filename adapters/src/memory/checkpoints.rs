//! The twin of the configuration.

use async_trait::async_trait;
use tally_core::definitions::Definitions;
use tally_core::format::Format;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_core::ports::{DeploymentConfig, Outcome};

use super::Memory;

/// The twin of the configuration.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    memory: Memory,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    config: Option<ShardCount>,
    /// How often a change of a counter's map was announced.
    pub(super) homes: u64,
    /// The counters that were defined.
    definitions: Definitions,
    ladder: Ladder,
}

impl Checkpoints {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }
}

#[async_trait]
impl DeploymentConfig for Checkpoints {
    async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount> {
        let mut state = self.memory.state();
        Ok(*state.checkpoints.config.get_or_insert(shards.unwrap_or(ShardCount::DEFAULT)))
    }

    async fn deployed(&self) -> Outcome<Option<ShardCount>> {
        Ok(self.memory.state().checkpoints.config)
    }

    async fn format(&self) -> Outcome<Option<Format>> {
        Ok(self.memory.state().checkpoints.config.map(|_| Format::written()))
    }

    async fn recent_format(&self) -> Outcome<Option<Format>> {
        self.format().await
    }

    async fn definitions(&self) -> Outcome<Definitions> {
        Ok(self.memory.state().checkpoints.definitions.clone())
    }

    async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool> {
        let mut state = self.memory.state();
        let stands = state.checkpoints.config.is_some() && state.checkpoints.definitions == *seen;
        if stands {
            state.checkpoints.definitions = to.clone();
        }
        Ok(stands)
    }

    async fn ladder(&self) -> Outcome<Ladder> {
        Ok(self.memory.state().checkpoints.ladder)
    }

    async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool> {
        let mut state = self.memory.state();
        let stands = state.checkpoints.config.is_some() && state.checkpoints.ladder == *seen;
        if stands {
            state.checkpoints.ladder = *to;
        }
        Ok(stands)
    }
}
