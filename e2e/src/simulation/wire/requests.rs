//! What a mutant leaves out of requests, or says in them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;
use tally_service::{Stage, Stop};

use super::super::instance::Role;
use super::super::mutant::Mutant;
use super::Tampered;
use crate::undisturbed;

/// How long after the reply a record comes.
const LATE: Duration = Duration::from_millis(1_500);

/// The filters that were stored last, by the ids of their items; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered(Arc<Mutex<BTreeMap<String, Value>>>);

impl Remembered {
    /// Puts the filter of the position before in the place of the one in `item`.
    fn take_earlier(&self, item: &mut Value) -> bool {
        let Some(id) = item["id"]["S"].as_str().filter(|id| id.starts_with("changes/position/")) else { return false };
        let id = id.to_owned();
        let filter = item["filter"].take();
        let earlier = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, filter.clone());
        item["filter"] = earlier.unwrap_or(filter);
        true
    }
}

impl Tampered {
    /// Does what the mutant does before `request` is sent; the body as it is sent.
    pub(super) async fn request(&self, operation: &str, request: &mut HttpRequest) -> Option<Value> {
        let mut body: Value = serde_json::from_slice(request.body().bytes()?).ok()?;
        if self.changed(operation, &mut body).await {
            let text = body.to_string();
            request.headers_mut().insert("content-length", text.len().to_string());
            *request.body_mut() = SdkBody::from(text);
        }
        Some(body)
    }

    async fn changed(&self, operation: &str, body: &mut Value) -> bool {
        match (self.mutant, operation, self.role) {
            (Mutant::StaleFilter, "PutItem", Role::Streamer) if is_about(body, "checkpoints") => {
                self.remembered.take_earlier(&mut body["Item"])
            }
            (Mutant::TwoUnderWay, "UpdateItem", Role::Streamer) => {
                let id = body["Key"]["id"]["S"].as_str().unwrap_or_default();
                if id.starts_with("changes/shard/") {
                    self.under_way.landed().await;
                }
                false
            }
            (Mutant::NoMarkerWait, "BatchWriteItem", Role::Recounter) => {
                for put in body["RequestItems"]["likes"].as_array().into_iter().flatten() {
                    let text = |name: &str| put["PutRequest"]["Item"][name]["S"].as_str().unwrap_or_default();
                    self.asked.marked(text("pk"), text("run"));
                }
                false
            }
            (Mutant::LateRecord, "TransactWriteItems", Role::Streamer) => self.record_late(body),
            (Mutant::Overwrite, "TransactWriteItems", Role::Streamer) => each(body, "Put", "recounts"),
            (Mutant::NoVersion, "TransactWriteItems", Role::Streamer) => each(body, "Update", "like_counts"),
            (Mutant::CommittedBeyond, "UpdateItem", Role::Consumer) => self.store_beyond(body),
            (_, "BatchExecuteStatement", Role::Consumer) => self.change_statements(body),
            _ => false,
        }
    }

    /// Takes the records out of a transaction, and puts them later if the process lives so long.
    fn record_late(&self, body: &mut Value) -> bool {
        let Some(items) = body["TransactItems"].as_array_mut() else { return false };
        let is_put = |item: &Value| item.get("Put").is_some();
        let (puts, left): (Vec<_>, Vec<_>) = std::mem::take(items).into_iter().partition(is_put);
        *items = left;
        let store = self.store.clone();
        self.host.worker(Stage::Output, "late", move |_: Stop| async move {
            tokio::time::sleep(LATE).await;
            for put in puts {
                undisturbed::send(&store, "PutItem", &put["Put"]).await;
            }
            Ok(())
        });
        true
    }
}

fn is_about(request: &Value, table: &str) -> bool {
    request["TableName"].as_str() == Some(table)
}

/// Makes the condition of each part of a transaction that does one thing to one table hold always; whether there was one.
fn each(body: &mut Value, kind: &str, table: &str) -> bool {
    let mut changed = false;
    for item in body["TransactItems"].as_array_mut().into_iter().flatten() {
        if let Some(part) = item.get_mut(kind).filter(|part| is_about(part, table)) {
            changed |= always(part);
        }
    }
    changed
}

/// Makes a condition hold always; what it names is still named.
fn always(request: &mut Value) -> bool {
    let Some(condition) = request["ConditionExpression"].as_str() else { return false };
    request["ConditionExpression"] = Value::from(format!("({condition}) OR NOT ({condition})"));
    true
}
