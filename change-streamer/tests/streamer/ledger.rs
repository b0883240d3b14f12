//! The ledger of changes as its readers read it, and the stream that it has to equal.

use std::collections::BTreeMap;

use tally_core::event::partition_of;
use tally_core::ids::{Ordinal, Sequence};
use tally_core::ledger::{Change, Filter, Message};
use tally_core::lineage::Lineage;
use tally_core::ports::{Position, TopicReader};
use tally_core::tally::read;

use crate::world::{World, eventually};

/// Changes by the stream shard and position of their records.
pub(crate) type Changes = BTreeMap<(Ordinal, Sequence), Change>;

/// What a reader makes of a topic.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) counted: Changes,
    /// Entries that were copies.
    pub(crate) copies: usize,
    pub(crate) messages: usize,
}

/// Reads all of a topic with the reader's filter.
pub(crate) async fn counted(topic: &dyn TopicReader) -> Ledger {
    let mut ledger = Ledger::default();
    let logs = topic.logs().await.unwrap();
    let partitions = u32::try_from(logs.len()).unwrap();
    for (partition, log) in logs {
        let (mut filter, mut from) = (Filter::default(), log.start);
        assert_eq!(from.0, 0, "nothing of it was trimmed");
        loop {
            let records = topic.read(&partition, from, log.end).await.unwrap();
            let Some(last) = records.last_offset() else { break };
            for record in records.iter() {
                let Message { shard, changes } = Message::read(record.value.unwrap()).unwrap();
                ledger.messages += 1;
                for change in changes {
                    assert_eq!(partition_of(change.subject.as_bytes(), partitions), partition.index);
                    if !filter.takes(shard, change.sequence) {
                        ledger.copies += 1;
                    } else if let Some(twice) = ledger.counted.insert((shard, change.sequence), change) {
                        panic!("it counts twice: {twice:?}");
                    }
                }
            }
            from = last.next();
        }
    }
    ledger
}

/// Every change that the table's stream still has.
pub(crate) async fn streamed(world: &World) -> Changes {
    let (label, mut changes) = (world.label().await, Changes::new());
    for state in world.states().await {
        let (id, shard) = (&state.checkpoint.id, state.checkpoint.ordinal);
        let mut next = Some(world.ports.stream.iterator(&label, id, Position::Oldest).await.unwrap());
        while let Some(iterator) = next {
            let page = world.ports.stream.records(&iterator, 1000).await.unwrap();
            let records = page.records.iter().map(|raw| read(raw).unwrap());
            let found = records.filter_map(|record| Some(((shard, record.sequence), Change::of(&record)?)));
            changes.extend(found);
            // An open stream shard has a next page for ever.
            next = page.next.filter(|_| !page.records.is_empty() || state.checkpoint.closed);
        }
    }
    changes
}

/// Waits until every stream shard is fed: up to now, or to its end.
pub(crate) async fn all_fed(world: &World) {
    let began = world.now();
    eventually("everything is in the ledger", async || {
        let states = world.states().await;
        let listed = world.ports.stream.shards(&world.label().await).await.unwrap();
        let lineage = Lineage::new(states.iter().map(|state| state.checkpoint.clone()), listed, None);
        lineage.unnumbered().is_empty()
            && states
                .iter()
                .all(|state| if state.checkpoint.closed { state.fed.end } else { state.fed.at > Some(began) })
    })
    .await;
}

/// Asserts that the topic, read with the filter, is the stream.
pub(crate) async fn equals_the_stream(world: &World, topic: &dyn TopicReader) -> Ledger {
    all_fed(world).await;
    let (ledger, stream) = (counted(topic).await, streamed(world).await);
    assert!(!stream.is_empty());
    let missing: Vec<_> = stream.iter().filter(|(at, _)| !ledger.counted.contains_key(at)).take(3).collect();
    assert!(missing.is_empty(), "missing in the ledger: {missing:?}");
    let other = ledger.counted.iter().find(|(at, change)| stream.get(at) != Some(*change));
    assert!(other.is_none(), "the stream has no such change: {other:?}");
    ledger
}
