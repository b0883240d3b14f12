//! BatchGetItem: up to a hundred items by key.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{check_count, left_out, refuse_all_hot, refuse_duplicates};
use crate::clock::Millis;
use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::table::Table;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::expression::Projection;
use crate::limits::{BATCH_GET_BYTES, BATCH_GETS};
use crate::op::Operation;
use crate::op::capacity::{Consumed, Halves, Report, read_halves};
use crate::op::params::{Names, Unsupported, check_table_name, parse_projection, refuse, required};
use crate::value::Item;
use crate::wire::json::Writer;

/// Reads items by key.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BatchGetItem {
    request_items: Option<BTreeMap<String, KeysAndAttributes>>,
    return_consumed_capacity: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KeysAndAttributes {
    #[serde(default)]
    keys: Vec<Item>,
    consistent_read: Option<bool>,
    projection_expression: Option<String>,
    expression_attribute_names: Names,
    attributes_to_get: Unsupported,
}

/// The checked reads of one table.
struct BatchReads {
    keys: Vec<(Key, Item)>,
    consistent: bool,
    projection: Option<Projection>,
    /// The projection as text, for `UnprocessedKeys`.
    projection_text: Option<String>,
    names: Names,
}

impl KeysAndAttributes {
    fn check(self, table: &Table) -> Result<BatchReads, Error> {
        refuse(&[("AttributesToGet", &self.attributes_to_get)])?;
        let projection =
            parse_projection(self.projection_expression.as_deref(), self.expression_attribute_names.clone())?;
        let keys = self
            .keys
            .into_iter()
            .map(|key| Ok((table.schema.key_of(&key)?, key)))
            .collect::<Result<Vec<_>, Error>>()?;
        refuse_duplicates(keys.iter().map(|(key, _)| key))?;
        Ok(BatchReads {
            keys,
            consistent: self.consistent_read.unwrap_or(false),
            projection,
            projection_text: self.projection_expression,
            names: self.expression_attribute_names,
        })
    }
}

impl BatchReads {
    fn write_unprocessed(&self, out: &mut Writer, keys: &[Item]) {
        out.object(|out| {
            out.key("Keys").array(|out| keys.iter().for_each(|key| out.item(key)));
            out.key("ConsistentRead").plain(self.consistent);
            if let Some(projection) = &self.projection_text {
                out.key("ProjectionExpression").string(projection);
            }
            if let Some(names) = &self.names {
                out.key("ExpressionAttributeNames").serialize(names);
            }
        });
    }
}

impl Operation for BatchGetItem {
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        self.carry_out(engine, false)
    }

    fn run_partly(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        self.carry_out(engine, true)
    }
}

impl BatchGetItem {
    fn carry_out(self, engine: &mut Engine, partly: bool) -> Result<Vec<u8>, Error> {
        let report = Report::parse(self.return_consumed_capacity.as_deref())?;
        let requests = required("requestItems", self.request_items)?;
        let counts = requests.values().map(|request| request.keys.len());
        let count = counts.clone().sum();
        check_count(counts, BATCH_GETS, "Too many items requested for the BatchGetItem call")?;
        let mut checked = Vec::new();
        for (name, request) in requests {
            check_table_name(&name)?;
            let reads = request.check(engine.table(&name)?)?;
            let as_of = engine.as_of(reads.consistent);
            checked.push((name, reads, as_of));
        }
        let places =
            || checked.iter().flat_map(|(name, reads, _)| reads.keys.iter().map(move |(key, _)| (name.as_str(), key)));
        refuse_all_hot(Use::Read, places(), engine)?;
        let left_out = left_out(count, partly, &mut engine.rng).into_iter();
        let hot = places().map(|(name, key)| engine.admit(Use::Read, name, key).is_err());
        let left_out: Vec<bool> = left_out.zip(hot).map(|(is_left, is_hot)| is_left || is_hot).collect();
        let mut left_out = left_out.into_iter();
        let tables = checked.iter().map(|(name, ..)| engine.table(name)).collect::<Result<Vec<_>, _>>()?;
        let mut progress = Progress::default();
        let answer = Writer::document(|out| {
            out.key("Responses").object(|out| {
                for ((name, reads, as_of), table) in checked.iter().zip(tables) {
                    out.key(name).array(|out| reads.read(table, *as_of, &mut left_out, &mut progress, out));
                }
            });
            out.key("UnprocessedKeys").object(|out| {
                for (name, reads, _) in &checked {
                    if let Some(keys) = progress.left.get(name) {
                        out.key(name);
                        reads.write_unprocessed(out, keys);
                    }
                }
            });
            progress.consumed.write_all(out, report, None);
        });
        for (table, key, halves) in progress.read {
            engine.spend(Use::Read, &table, &key, halves);
        }
        Ok(answer)
    }
}

/// The progress of a batch: what was read, and what is left.
#[derive(Default)]
struct Progress {
    bytes: usize,
    consumed: Consumed,
    left: BTreeMap<String, Vec<Item>>,
    /// The table, the key and the cost of each read.
    read: Vec<(String, Key, Halves)>,
}

impl BatchReads {
    /// Writes the items that exist, and leaves the keys that are to be left out or have no room.
    fn read(
        &self,
        table: &Table,
        as_of: Option<Millis>,
        left_out: &mut impl Iterator<Item = bool>,
        progress: &mut Progress,
        out: &mut Writer,
    ) {
        for ((key, item), is_left) in self.keys.iter().zip(left_out) {
            let found = table.rows.get(key, as_of);
            let size = found.map_or(0, Image::size);
            if is_left || progress.bytes + size > BATCH_GET_BYTES {
                progress.left.entry(table.name.clone()).or_default().push(item.clone());
                continue;
            }
            progress.bytes += size;
            let halves = read_halves(size, self.consistent);
            progress.consumed.add(&table.name, halves);
            progress.read.push((table.name.clone(), key.clone(), halves));
            if let Some(image) = found {
                out.parts(image, self.projection.as_ref());
            }
        }
    }
}
