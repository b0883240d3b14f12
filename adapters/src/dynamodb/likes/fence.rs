//! A fence as an item, and the one update that moves it.

use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use tally_core::fence::{Fence, Offset, Partition, TopicId};
use tally_core::ports::Outcome;

use super::super::expression::Aliases;
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::checkpoints::{CFG, ID, OFFSET, PARTITIONS, TOPIC_ID};

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
    encoded
}

pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Fence> {
    Ok(Fence {
        offset: Offset(reader.required_number(OFFSET)?),
        cfg: reader.required_number(CFG)?,
        topic: TopicId(reader.required_text(TOPIC_ID)?.into()),
    })
}

/// Replaces the fence if it is still `from`, in every part.
pub(super) fn advance(table: &str, partition: &Partition, from: &Fence, to: &Fence) -> TransactWriteItem {
    let mut say = Aliases::default();
    let [offset, cfg, topic] = say.names([OFFSET, CFG, TOPIC_ID]);
    let (old_offset, new_offset) = (say.number(from.offset), say.number(to.offset));
    let (old_cfg, new_cfg) = (say.number(from.cfg), say.number(to.cfg));
    let (old_topic, new_topic) = (say.text(from.topic.to_string()), say.text(to.topic.to_string()));
    let (names, values) = say.finish();
    let update = Update::builder()
        .table_name(table)
        .set_key(Some(key(partition)))
        .update_expression(format!("SET {offset}={new_offset},{cfg}={new_cfg},{topic}={new_topic}"))
        .condition_expression(format!("{offset}={old_offset} AND {cfg}={old_cfg} AND {topic}={old_topic}"))
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .build()
        .expect("table, key and expression are set");
    TransactWriteItem::builder().update(update).build()
}
