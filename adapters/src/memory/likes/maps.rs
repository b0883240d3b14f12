//! The twin of the maps that stand among the rows of sets.

use async_trait::async_trait;
use tally_core::homes::{CounterMap, Sought};
use tally_core::ids::{CounterId, ReservedKey, RowKey, ShardCount};
use tally_core::ports::{CounterMaps, Outcome};

use super::{Memory, Row};

/// The twin of the maps of sets.
#[derive(Clone, Debug)]
pub struct Maps {
    memory: Memory,
}

impl Maps {
    pub(in crate::memory) fn new(memory: Memory) -> Self {
        Self { memory }
    }
}

fn key(counter: &CounterId) -> (String, String) {
    (RowKey::first(counter).to_string(), ReservedKey::Homes.to_string())
}

#[async_trait]
impl CounterMaps for Maps {
    async fn map(&self, counter: &CounterId) -> Outcome<Option<CounterMap>> {
        Ok(match self.memory.state().likes.rows.get(&key(counter)) {
            Some(Row::Map(map)) => Some(*map),
            _ => None,
        })
    }

    async fn maps(&self, counters: &[CounterId]) -> Outcome<Vec<Option<CounterMap>>> {
        let state = self.memory.state();
        let map =
            |counter| if let Some(Row::Map(map)) = state.likes.rows.get(&key(counter)) { Some(*map) } else { None };
        Ok(counters.iter().map(map).collect())
    }

    async fn locate(&self, sought: &[Sought]) -> Outcome<Vec<Option<ShardCount>>> {
        let state = self.memory.state();
        let home = |sought: &Sought| {
            let is_there = |key: RowKey| {
                let row = state.likes.rows.get(&(key.to_string(), sought.member.to_string()));
                matches!(row, Some(Row::Counted { .. }))
            };
            sought.keys().find_map(|(home, key)| is_there(key).then_some(home))
        };
        Ok(sought.iter().map(home).collect())
    }

    async fn put_map(&self, counter: &CounterId, seen: Option<&CounterMap>, map: &CounterMap) -> Outcome<bool> {
        let key = key(counter);
        let mut state = self.memory.state();
        if state.likes.rows.get(&key).cloned() != seen.copied().map(Row::Map) {
            return Ok(false);
        }
        state.write(key, Some(Row::Map(*map)));
        Ok(true)
    }

    async fn announced(&self) -> Outcome<u64> {
        Ok(self.memory.state().checkpoints.homes)
    }

    async fn announce(&self) -> Outcome<()> {
        self.memory.state().checkpoints.homes += 1;
        Ok(())
    }
}
