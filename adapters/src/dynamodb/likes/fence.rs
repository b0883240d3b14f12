//! Fences as items, and the updates that move them.

use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem, Update};
use tally_core::fence::{Fence, Fences, Offset, Partition, Terms, TopicId};
use tally_core::ids::{Lane, LaneCount};
use tally_core::ports::Outcome;

use super::super::expression::{Aliases, Names, Values};
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::checkpoints::{
    CFG, DEFS, GENERATION, ID, LANES, OFFSET, PARTITIONS, REDO, SUMS_FROM, TOPIC_ID,
};

/// What the topic of a fence of several lanes begins with: no id and no name of a topic has a slash. A build of before there were
/// lanes takes it for another topic and stands still; without it, it would move the first lane's fence past events of the others.
const LANED: &str = "lanes/";

/// The topic of a fence as it is stored.
fn stored_topic(fence: &Fence) -> String {
    let begins = if fence.terms.lanes > LaneCount::ONE { LANED } else { "" };
    format!("{begins}{}", fence.topic)
}

/// Where the fences of `topic` are kept; a topic's name has no slash.
pub(super) fn prefix(topic: &str) -> String {
    format!("kafka/{topic}/")
}

/// The key of a lane's fence; lane 0 has the partition's own.
pub(super) fn key(partition: &Partition, lane: Lane) -> Item {
    let of_partition = format!("{}{}", prefix(&partition.topic), partition.index);
    let id = if lane == Lane::FIRST { of_partition } else { format!("{of_partition}/{lane}") };
    item([(ID, text(id))])
}

/// Partition and lane of what follows the prefix in a key.
pub(super) fn place(rest: &str) -> Option<(u32, Lane)> {
    let Some((index, lane)) = rest.split_once('/') else { return Some((rest.parse().ok()?, Lane::FIRST)) };
    Some((index.parse().ok()?, Lane::new(lane.parse().ok()?)?))
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
    let mut encoded = key(partition, fence.lane);
    encoded.extend(item([
        (OFFSET, number(fence.offset)),
        (CFG, number(fence.cfg)),
        (TOPIC_ID, text(stored_topic(fence))),
    ]));
    encoded.extend(terms(fence).into_iter().filter_map(|(name, value)| Some((name.to_owned(), number(value?)))));
    encoded
}

/// The attributes of terms; those that say no more than their absence would are absent. What holds of all lanes is stated by
/// lane 0; the others repeat the generation, which says what their offsets are.
fn terms(fence: &Fence) -> [(&'static str, Option<u64>); 5] {
    let Terms { lanes, defs, generation, redo, sums_from } = fence.terms;
    let stated = |value: u64| (value > 0).then_some(value);
    let of_all = |value: Option<u64>| value.filter(|_| fence.lane == Lane::FIRST);
    let lanes = (lanes > LaneCount::ONE).then_some(lanes.get() as u64);
    let (redo, sums_from) = (redo.map(|redo| redo.0), stated(sums_from.0));
    [
        (LANES, of_all(lanes)),
        (DEFS, of_all(stated(defs.into()))),
        (GENERATION, stated(generation)),
        (REDO, of_all(redo)),
        (SUMS_FROM, of_all(sums_from)),
    ]
}

/// The fence of `lane` as its item has it.
pub(super) fn decode(reader: &Reader<'_>, lane: Lane) -> Outcome<Fence> {
    let lanes = reader.number(LANES)?.unwrap_or(1);
    let topic = reader.required_text(TOPIC_ID)?;
    Ok(Fence {
        lane,
        offset: Offset(reader.required_number(OFFSET)?),
        cfg: reader.required_number(CFG)?,
        topic: TopicId(topic.strip_prefix(LANED).unwrap_or(topic).into()),
        terms: Terms {
            lanes: LaneCount::new(lanes).ok_or_else(|| reader.malformed(LANES, "no number of lanes"))?,
            defs: reader.number(DEFS)?.unwrap_or(0),
            generation: reader.number(GENERATION)?.unwrap_or(0),
            redo: reader.number(REDO)?.map(Offset),
            sums_from: Offset(reader.number(SUMS_FROM)?.unwrap_or(0)),
        },
    })
}

/// An update of a fence, its condition, and the names and values of both.
pub(super) struct Moved {
    pub(super) update: String,
    pub(super) condition: String,
    pub(super) names: Option<Names>,
    pub(super) values: Option<Values>,
}

/// Replaces the fence if it is still `from`, in every part.
pub(super) fn moved(from: &Fence, to: &Fence) -> Moved {
    let mut say = Aliases::default();
    let (condition, [offset, cfg, topic]) = still(from, &mut say);
    let (new_offset, new_cfg) = (say.number(to.offset), say.number(to.cfg));
    let new_topic = say.text(stored_topic(to));
    let (mut set, mut removed) = (format!("SET {offset}={new_offset},{cfg}={new_cfg},{topic}={new_topic}"), Vec::new());
    // They change with `cfg` alone, so the condition covers them.
    for ((name, before), (_, after)) in terms(from).into_iter().zip(terms(to)) {
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
    Moved { update: set, condition, names, values }
}

/// The condition that the fence is `fence`, with the names of offset, `cfg` and topic.
fn still(fence: &Fence, say: &mut Aliases) -> (String, [String; 3]) {
    let [offset, cfg, topic] = say.names([OFFSET, CFG, TOPIC_ID]);
    let (old_offset, old_cfg) = (say.number(fence.offset), say.number(fence.cfg));
    let old_topic = say.text(stored_topic(fence));
    (format!("{offset}={old_offset} AND {cfg}={old_cfg} AND {topic}={old_topic}"), [offset, cfg, topic])
}

/// The same as part of a transaction.
pub(super) fn advance(table: &str, partition: &Partition, from: &Fence, to: &Fence) -> Update {
    let Moved { update, condition, names, values } = moved(from, to);
    Update::builder()
        .table_name(table)
        .set_key(Some(key(partition, from.lane)))
        .update_expression(update)
        .condition_expression(condition)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .build()
        .expect("table, key and expression are set")
}

/// Puts `to` in the place of `seen` if every lane is still as there: lanes that stay are moved, new ones put, others deleted.
pub(super) fn replace(table: &str, partition: &Partition, seen: &Fences, to: &Fences) -> Vec<TransactWriteItem> {
    let all = seen.lanes().max(to.lanes()).all();
    all.filter_map(|lane| match (seen.get(lane), to.get(lane)) {
        (Some(from), Some(to)) => {
            Some(TransactWriteItem::builder().update(advance(table, partition, from, to)).build())
        }
        // Lane 0's condition covers it: a partition has as many lanes as that one states.
        (None, Some(to)) => {
            let put = Put::builder().table_name(table).set_item(Some(encode(partition, to)));
            Some(TransactWriteItem::builder().put(put.build().expect("table and item are set")).build())
        }
        (Some(from), None) => Some(drop(table, partition, from)),
        (None, None) => None,
    })
    .collect()
}

fn drop(table: &str, partition: &Partition, from: &Fence) -> TransactWriteItem {
    let mut say = Aliases::default();
    let (condition, _) = still(from, &mut say);
    let (names, values) = say.finish();
    let delete = Delete::builder()
        .table_name(table)
        .set_key(Some(key(partition, from.lane)))
        .condition_expression(condition)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values);
    TransactWriteItem::builder().delete(delete.build().expect("table and key are set")).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fences of so many lanes.
    fn fences(lanes: u64) -> Fences {
        let first = Fences::from(Fence::new(Offset(7), 2, TopicId("t".into())));
        first.level(Offset(7), Terms { lanes: LaneCount::new(lanes).unwrap(), ..Terms::default() })
    }

    fn stored(partition: &Partition, fence: &Fence) -> String {
        let encoded = encode(partition, fence);
        let reader = Reader::new("checkpoints", &encoded);
        assert_eq!(decode(&reader, fence.lane).unwrap().topic, fence.topic);
        reader.required_text(TOPIC_ID).unwrap().to_owned()
    }

    #[test]
    fn fences_of_several_lanes_count_in_a_topic_that_no_build_of_before_lanes_reads() {
        let partition = Partition { topic: "likes".into(), index: 3 };
        assert_eq!(stored(&partition, fences(1).first()), "t");
        for fence in fences(2).iter() {
            assert_eq!(stored(&partition, fence), "lanes/t");
        }
        let paused = fences(2).reset(&fences(2).topic().paused(), fences(2).terms(), |fence| fence.offset);
        assert_eq!(stored(&partition, paused.first()), "lanes/paused/t");
    }
}
