//! A fence as an item, and the one update that moves it.

use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use tally_core::fence::{Fence, Offset, Partition, Terms, TopicId};
use tally_core::ports::Outcome;

use super::super::expression::Aliases;
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::checkpoints::{CFG, DEFS, GENERATION, ID, OFFSET, PARTITIONS, REDO, SUMS_FROM, TOPIC_ID};

/// Where the fences of `topic` are kept; a topic's name has no slash.
pub(super) fn prefix(topic: &str) -> String {
    format!("kafka/{topic}/")
}

pub(super) fn key(partition: &Partition) -> Item {
    item([(ID, text(format!("{}{}", prefix(&partition.topic), partition.index)))])
}

/// Where it stands how many partitions `topic` had at first.
pub(super) fn topic_key(topic: &str) -> Item {
    item([(ID, text(format!("kafka/{topic}")))])
}

pub(super) fn encode_topic(topic: &str, partitions: u32) -> Item {
    let mut encoded = topic_key(topic);
    encoded.extend(item([(PARTITIONS, number(partitions))]));
    encoded
}

pub(super) fn encode(partition: &Partition, fence: &Fence) -> Item {
    let mut encoded = key(partition);
    encoded.extend(item([
        (OFFSET, number(fence.offset)),
        (CFG, number(fence.cfg)),
        (TOPIC_ID, text(fence.topic.to_string())),
    ]));
    encoded.extend(terms(&fence.terms).into_iter().filter_map(|(name, value)| Some((name.to_owned(), number(value?)))));
    encoded
}

/// The attributes of terms; those that say no more than their absence would are absent.
fn terms(terms: &Terms) -> [(&'static str, Option<u64>); 4] {
    let stated = |value: u64| (value > 0).then_some(value);
    let redo = terms.redo.map(|redo| redo.0);
    let (defs, generation) = (stated(terms.defs.into()), stated(terms.generation));
    [(DEFS, defs), (GENERATION, generation), (REDO, redo), (SUMS_FROM, stated(terms.sums_from.0))]
}

pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Fence> {
    Ok(Fence {
        offset: Offset(reader.required_number(OFFSET)?),
        cfg: reader.required_number(CFG)?,
        topic: TopicId(reader.required_text(TOPIC_ID)?.into()),
        terms: Terms {
            defs: reader.number(DEFS)?.unwrap_or(0),
            generation: reader.number(GENERATION)?.unwrap_or(0),
            redo: reader.number(REDO)?.map(Offset),
            sums_from: Offset(reader.number(SUMS_FROM)?.unwrap_or(0)),
        },
    })
}

/// Replaces the fence if it is still `from`, in every part.
pub(super) fn advance(table: &str, partition: &Partition, from: &Fence, to: &Fence) -> TransactWriteItem {
    let mut say = Aliases::default();
    let [offset, cfg, topic] = say.names([OFFSET, CFG, TOPIC_ID]);
    let (old_offset, new_offset) = (say.number(from.offset), say.number(to.offset));
    let (old_cfg, new_cfg) = (say.number(from.cfg), say.number(to.cfg));
    let (old_topic, new_topic) = (say.text(from.topic.to_string()), say.text(to.topic.to_string()));
    let (mut set, mut removed) = (format!("SET {offset}={new_offset},{cfg}={new_cfg},{topic}={new_topic}"), Vec::new());
    // They change with `cfg` alone, so the condition covers them.
    for ((name, before), (_, after)) in terms(&from.terms).into_iter().zip(terms(&to.terms)) {
        match after {
            _ if after == before => {}
            Some(value) => {
                let (name, value) = (say.name(name), say.number(value));
                set = format!("{set},{name}={value}");
            }
            None => removed.push(say.name(name)),
        }
    }
    if !removed.is_empty() {
        set = format!("{set} REMOVE {}", removed.join(","));
    }
    let (names, values) = say.finish();
    let update = Update::builder()
        .table_name(table)
        .set_key(Some(key(partition)))
        .update_expression(set)
        .condition_expression(format!("{offset}={old_offset} AND {cfg}={old_cfg} AND {topic}={old_topic}"))
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .build()
        .expect("table, key and expression are set");
    TransactWriteItem::builder().update(update).build()
}
