//! BatchWriteItem: up to 25 independent puts and deletes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{check_count, left_out, refuse_all_hot, refuse_duplicates};
use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::table::{Stored, Table};
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::limits::BATCH_WRITES;
use crate::op::Operation;
use crate::op::capacity::{Consumed, Report, write_halves};
use crate::op::items::refuse_metrics;
use crate::op::params::{check_table_name, required};
use crate::op::write::{Plan, check_item};
use crate::value::Item;
use crate::wire::json::Writer;

/// Independent puts and deletes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BatchWriteItem {
    request_items: Option<BTreeMap<String, Vec<WriteRequest>>>,
    return_consumed_capacity: Option<String>,
    return_item_collection_metrics: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WriteRequest {
    put_request: Option<PutRequest>,
    delete_request: Option<DeleteRequest>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutRequest {
    item: Item,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteRequest {
    key: Item,
}

/// A checked write of a batch.
struct BatchWrite {
    key: Key,
    request: PutOrDelete,
}

enum PutOrDelete {
    Put(Item),
    Delete(Item),
}

impl WriteRequest {
    fn check(self, table: &Table) -> Result<BatchWrite, Error> {
        match (self.put_request, self.delete_request) {
            (Some(put), None) => {
                let key = table.schema.key_of_item(&put.item)?;
                check_item(table, &put.item)?;
                Ok(BatchWrite { key, request: PutOrDelete::Put(put.item) })
            }
            (None, Some(delete)) => {
                Ok(BatchWrite { key: table.schema.key_of(&delete.key)?, request: PutOrDelete::Delete(delete.key) })
            }
            _ => Err(Error::validation("A WriteRequest must contain exactly one of PutRequest and DeleteRequest")),
        }
    }
}

impl PutOrDelete {
    /// The request, for `UnprocessedItems`.
    fn write(&self, out: &mut Writer) {
        out.object(|out| match self {
            Self::Put(item) => out.key("PutRequest").object(|out| out.key("Item").item(item)),
            Self::Delete(key) => out.key("DeleteRequest").object(|out| out.key("Key").item(key)),
        });
    }
}

impl Operation for BatchWriteItem {
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        self.carry_out(engine, false)
    }

    fn run_partly(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        self.carry_out(engine, true)
    }
}

impl BatchWriteItem {
    fn carry_out(self, engine: &mut Engine, partly: bool) -> Result<Vec<u8>, Error> {
        refuse_metrics(self.return_item_collection_metrics.as_deref())?;
        let report = Report::parse(self.return_consumed_capacity.as_deref())?;
        let requests = required("requestItems", self.request_items)?;
        check_count(requests.values().map(Vec::len), BATCH_WRITES, "")?;
        let mut writes = Vec::new();
        for (name, requests) in requests {
            check_table_name(&name)?;
            let table = engine.table(&name)?;
            let first = writes.len();
            for request in requests {
                writes.push((name.clone(), request.check(table)?));
            }
            refuse_duplicates(writes[first..].iter().map(|(_, write)| &write.key))?;
        }
        let places = || writes.iter().map(|(name, write)| (name.as_str(), &write.key));
        refuse_all_hot(Use::Write, places(), engine)?;
        let left_out = left_out(writes.len(), partly, &mut engine.rng);
        let mut consumed = Consumed::default();
        let mut left: BTreeMap<String, Vec<PutOrDelete>> = BTreeMap::new();
        for ((name, write), is_left) in writes.into_iter().zip(left_out) {
            if is_left || engine.admit(Use::Write, &name, &write.key).is_err() {
                left.entry(name).or_default().push(write.request);
            } else {
                let table = engine.table(&name)?;
                let plan = write.plan(table);
                plan.consume(table, 1, &mut consumed);
                engine.spend(Use::Write, &name, &plan.key, write_halves(plan.bytes()));
                engine.write(&name, &plan.key, plan.new.as_ref())?;
            }
        }
        Ok(Writer::document(|out| {
            out.key("UnprocessedItems").object(|out| {
                for (name, requests) in &left {
                    out.key(name).array(|out| requests.iter().for_each(|request| request.write(out)));
                }
            });
            consumed.write_all(out, report, None);
        }))
    }
}

impl BatchWrite {
    fn plan(self, table: &Table) -> Plan {
        let new = match self.request {
            PutOrDelete::Put(item) => Some(Stored { image: Image::new(&item, &table.schema), item }),
            PutOrDelete::Delete(_) => None,
        };
        Plan { old: table.rows.get(&self.key, None).cloned(), key: self.key, new }
    }
}
