//! BatchWriteItem: up to 25 independent puts and deletes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{check_count, left_out, refuse_all_hot, refuse_duplicates};
use crate::engine::Engine;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::json::Writer;
use crate::limits::BATCH_WRITES;
use crate::op::capacity::{Consumed, Report};
use crate::op::items::refuse_metrics;
use crate::op::params::{check_table_name, required};
use crate::op::write::{Action, Verb};
use crate::value::Item;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BatchWriteItem {
    request_items: Option<BTreeMap<String, Vec<WriteRequest>>>,
    return_consumed_capacity: Option<String>,
    return_item_collection_metrics: Option<String>,
    /// Whether some writes are left out.
    #[serde(skip)]
    pub(in crate::op) partly: bool,
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

impl WriteRequest {
    fn into_action(self, table: &str) -> Result<Action, Error> {
        let (verb, subject) = match (self.put_request, self.delete_request) {
            (Some(put), None) => (Verb::Put, put.item),
            (None, Some(delete)) => (Verb::Delete, delete.key),
            _ => {
                return Err(Error::validation(
                    "A WriteRequest must contain exactly one of PutRequest and DeleteRequest",
                ));
            }
        };
        Ok(Action::new(verb, table.to_owned(), subject, None, None, false))
    }
}

/// Carries out independent puts and deletes.
pub(crate) fn write(request: BatchWriteItem, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    refuse_metrics(request.return_item_collection_metrics.as_deref())?;
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    let requests = required("requestItems", request.request_items)?;
    check_count(requests.values().map(Vec::len), BATCH_WRITES, "")?;
    let mut writes = Vec::new();
    for (name, requests) in requests {
        check_table_name(&name)?;
        let table = engine.table(&name)?;
        let first = writes.len();
        for request in requests {
            let action = request.into_action(&name)?;
            writes.push((action.key(table)?, action));
        }
        refuse_duplicates(writes[first..].iter().map(|(key, _)| key))?;
    }
    refuse_all_hot(Use::Write, writes.iter().map(|(key, action)| (action.table.as_str(), key)), engine)?;
    let left_out = left_out(writes.len(), request.partly, &mut engine.rng);
    let mut consumed = Consumed::default();
    let mut left: BTreeMap<String, Vec<Action>> = BTreeMap::new();
    for ((key, mut action), is_left) in writes.into_iter().zip(left_out) {
        if is_left || engine.admit(Use::Write, &action.table, &key).is_err() {
            left.entry(action.table.clone()).or_default().push(action);
        } else {
            action.carry_out(&key, engine, &mut consumed)?;
        }
    }
    Ok(Writer::document(|out| {
        out.key("UnprocessedItems").object(|out| {
            for (name, actions) in &left {
                out.key(name).array(|out| actions.iter().for_each(|action| write_request(action, out)));
            }
        });
        consumed.write_all(out, report, None);
    }))
}

/// The request, for `UnprocessedItems`.
fn write_request(action: &Action, out: &mut Writer) {
    let (request, member) = if action.verb == Verb::Put { ("PutRequest", "Item") } else { ("DeleteRequest", "Key") };
    out.object(|out| out.key(request).object(|out| out.key(member).serialize(&action.subject)));
}
