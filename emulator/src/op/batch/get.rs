//! BatchGetItem: up to a hundred items by key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{check_count, left_out, refuse_all_hot, refuse_duplicates};
use crate::clock::Millis;
use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::expression::Projection;
use crate::json::Writer;
use crate::limits::{BATCH_GET_BYTES, BATCH_GETS};
use crate::op::capacity::{Consumed, Report, read_halves};
use crate::op::params::{Names, check_table_name, parse_projection, required};
use crate::value::Item;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BatchGetItem {
    request_items: Option<BTreeMap<String, KeysAndAttributes>>,
    return_consumed_capacity: Option<String>,
    /// Whether some keys are left out.
    #[serde(skip)]
    pub(in crate::op) partly: bool,
}

/// The reads of one table. As an answer, those that were left out.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct KeysAndAttributes {
    #[serde(default)]
    keys: Vec<Item>,
    consistent_read: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    projection_expression: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expression_attribute_names: Names,
}

/// The checked reads of one table.
struct BatchReads {
    table: String,
    keys: Vec<(Key, Item)>,
    as_of: Option<Millis>,
    consistent: bool,
    projection: Option<Projection>,
    found: Vec<Image>,
    /// The request with the keys that were left out.
    left: KeysAndAttributes,
}

impl KeysAndAttributes {
    fn check(mut self, table: String, engine: &mut Engine) -> Result<BatchReads, Error> {
        let projection =
            parse_projection(self.projection_expression.as_deref(), self.expression_attribute_names.clone())?;
        let schema = &engine.table(&table)?.schema;
        let keys = std::mem::take(&mut self.keys).into_iter().map(|key| Ok((schema.key_of(&key)?, key)));
        let keys = keys.collect::<Result<Vec<_>, Error>>()?;
        refuse_duplicates(keys.iter().map(|(key, _)| key))?;
        let consistent = *self.consistent_read.get_or_insert(false);
        let as_of = engine.as_of(consistent);
        Ok(BatchReads { table, keys, as_of, consistent, projection, found: Vec::new(), left: self })
    }
}

/// Reads items by key.
pub(crate) fn get(request: BatchGetItem, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    let requests = required("requestItems", request.request_items)?;
    let counts = requests.values().map(|request| request.keys.len());
    let count = counts.clone().sum();
    check_count(counts, BATCH_GETS, "Too many items requested for the BatchGetItem call")?;
    let mut checked = Vec::with_capacity(requests.len());
    for (name, request) in requests {
        check_table_name(&name)?;
        checked.push(request.check(name, engine)?);
    }
    let places = || checked.iter().flat_map(|reads| reads.keys.iter().map(move |(key, _)| (reads.table.as_str(), key)));
    refuse_all_hot(Use::Read, places(), engine)?;
    let left_out = left_out(count, request.partly, &mut engine.rng).into_iter();
    let hot = places().map(|(name, key)| engine.admit(Use::Read, name, key).is_err());
    let left_out: Vec<bool> = left_out.zip(hot).map(|(is_left, is_hot)| is_left || is_hot).collect();
    let mut consumed = Consumed::default();
    read(&mut checked, &left_out, engine, &mut consumed)?;
    Ok(Writer::document(|out| {
        out.key("Responses").object(|out| {
            for BatchReads { table, found, projection, .. } in &checked {
                out.key(table).array(|out| found.iter().for_each(|image| out.parts(image, projection.as_ref())));
            }
        });
        out.key("UnprocessedKeys").object(|out| {
            for BatchReads { table, left, .. } in checked.iter().filter(|reads| !reads.left.keys.is_empty()) {
                out.key(table).serialize(left);
            }
        });
        consumed.write_all(out, report, None);
    }))
}

/// Reads the items, and leaves the keys that are to be left out or have no room.
fn read(
    checked: &mut [BatchReads],
    left_out: &[bool],
    engine: &mut Engine,
    consumed: &mut Consumed,
) -> Result<(), Error> {
    let mut left_out = left_out.iter();
    let mut bytes = 0;
    for reads in checked {
        for (key, item) in std::mem::take(&mut reads.keys) {
            let found = engine.table(&reads.table)?.rows.get(&key, reads.as_of).cloned();
            let size = found.as_ref().map_or(0, Image::size);
            if left_out.next() == Some(&true) || bytes + size > BATCH_GET_BYTES {
                reads.left.keys.push(item);
                continue;
            }
            bytes += size;
            consumed.pay(Use::Read, &reads.table, &key, read_halves(size, reads.consistent), engine);
            reads.found.extend(found);
        }
    }
    Ok(())
}
