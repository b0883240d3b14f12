//! Breaks a rule of simulated services by changing what they send to the emulated DynamoDB and what it answers, so that
//! the services contain no test switches. The laws of the simulation have to find each of these mutants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tally_core::changes::Place;
use tally_core::ids::CounterId;
use tally_core::topic::Offset;
use tally_service::{Stage, Stop};

use crate::simulation::instance::Role;
use crate::simulation::mutant::Mutant;
use crate::simulation::wire::Tampered;
use crate::tables;

/// How long after the reply a record is written.
const LATE: Duration = Duration::from_millis(1_500);

/// The filters that were last stored, by the ids of their items. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered(Arc<Mutex<BTreeMap<String, Value>>>);

impl Remembered {
    /// Replaces the filter in `item` by that of the previous position.
    fn take_earlier(&self, item: &mut Value) -> bool {
        let Some(id) = item["id"]["S"].as_str().filter(|id| id.starts_with("changes/position/")) else { return false };
        let id = id.to_owned();
        let filter = item["filter"].take();
        let earlier = self.0.lock().insert(id, filter.clone());
        item["filter"] = earlier.unwrap_or(filter);
        true
    }
}

impl Tampered {
    /// Applies the mutant to `request`, and returns the body that is sent.
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
        match (self.mutant, operation, self.process.role) {
            (Mutant::StaleFilter, "PutItem", Role::Streamer) if is_about(body, "checkpoints") => {
                self.process.world.remembered.take_earlier(&mut body["Item"])
            }
            (Mutant::TwoUnderWay, "UpdateItem", Role::Streamer) => {
                let id = body["Key"]["id"]["S"].as_str().unwrap_or_default();
                if id.starts_with("changes/shard/") {
                    self.process.under_way.landed().await;
                }
                false
            }
            (Mutant::NoMarkerWait, "BatchWriteItem", Role::Recounter) => {
                for put in body["RequestItems"]["likes"].as_array().into_iter().flatten() {
                    let text = |name: &str| put["PutRequest"]["Item"][name]["S"].as_str().unwrap_or_default();
                    self.process.asked.marked(text("pk"), text("run"));
                }
                false
            }
            (Mutant::EarlierEntry, "PutItem", Role::Streamer) if is_about(body, "like_counts") => always(body),
            (Mutant::LateRecord, "TransactWriteItems", Role::Streamer) => self.record_late(body),
            (Mutant::Overwrite, "TransactWriteItems", Role::Streamer) => each(body, "Put", "recounts"),
            (Mutant::NoVersion, "TransactWriteItems", Role::Streamer) => each(body, "Update", "like_counts"),
            (Mutant::CommittedBeyond, "UpdateItem", Role::Consumer) => self.store_beyond(body),
            (_, "BatchExecuteStatement", Role::Consumer) => self.change_statements(body),
            _ => false,
        }
    }

    /// Removes the records from a transaction, and puts them later if the process lives that long.
    fn record_late(&self, body: &mut Value) -> bool {
        let Some(items) = body["TransactItems"].as_array_mut() else { return false };
        let is_put = |item: &Value| item.get("Put").is_some();
        let (puts, left): (Vec<_>, Vec<_>) = std::mem::take(items).into_iter().partition(is_put);
        *items = left;
        let store = self.process.world.emulator.clone();
        self.process.host.worker(Stage::Output, "late", move |_: Stop| async move {
            tokio::time::sleep(LATE).await;
            for put in puts {
                tables::send(&store, "PutItem", &put["Put"]).await;
            }
            Ok(())
        });
        true
    }
}

fn is_about(request: &Value, table: &str) -> bool {
    request["TableName"].as_str() == Some(table)
}

/// Makes the conditions of all actions of this kind on one table in a transaction always true. Returns whether there was one.
fn each(body: &mut Value, kind: &str, table: &str) -> bool {
    let mut changed = false;
    for item in body["TransactItems"].as_array_mut().into_iter().flatten() {
        if let Some(part) = item.get_mut(kind).filter(|part| is_about(part, table)) {
            changed |= always(part);
        }
    }
    changed
}

/// Makes a condition always true. It still uses the same names and values.
fn always(request: &mut Value) -> bool {
    let Some(condition) = request["ConditionExpression"].as_str() else { return false };
    request["ConditionExpression"] = Value::from(format!("({condition}) OR NOT ({condition})"));
    true
}

/// How long a retry continues that ignores newer events: longer than a short-lived tombstone is kept.
const OUTLIVES: Duration = Duration::from_secs(61 * 60);

impl Tampered {
    /// Whether its requests are accepted regardless of the age of their signature.
    pub(super) fn is_signed_anew(&self) -> bool {
        self.mutant == Mutant::Sleeper && self.process.role == Role::Consumer
    }

    /// Changes the statements in a request of a consumer, and returns whether there were any.
    pub(super) fn change_statements(&self, body: &mut Value) -> bool {
        let mut changed = false;
        for statement in body["Statements"].as_array_mut().into_iter().flatten() {
            changed |= match self.mutant {
                Mutant::NoTombstone => delete(statement),
                Mutant::KeptGone => without(statement, "liked_at", r#" REMOVE "gone""#, false),
                Mutant::CellUnguarded => without(statement, r#""to"=?"#, r#" AND "to"=?"#, true),
                _ => false,
            };
        }
        changed
    }

    /// Sends each like that did not become a row again after a long time, regardless of newer events.
    pub(super) fn retry_later(&self, asked: &Value, body: &Value) {
        let outcomes = body["Responses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let statements = asked["Statements"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (statement, outcome) in statements.iter().zip(outcomes) {
            let text = statement["Statement"].as_str().unwrap_or_default();
            let code = outcome["Error"]["Code"].as_str().unwrap_or_default();
            if !text.starts_with("INSERT") || !text.contains("'liked_at'") || !code.starts_with("Throttl") {
                continue;
            }
            let (store, again) = (self.process.world.emulator.clone(), json!({"Statements": [statement]}));
            self.process.host.worker(Stage::Output, "retry", move |_: Stop| async move {
                tokio::time::sleep(OUTLIVES).await;
                tables::send(&store, "BatchExecuteStatement", &again).await;
                Ok(())
            });
        }
    }

    /// Stores everything that was read as done.
    pub(super) fn store_beyond(&self, body: &mut Value) -> bool {
        let id = body["Key"]["id"]["S"].as_str().unwrap_or_default();
        let index = id.strip_prefix("claim/").and_then(|place| place.rsplit('/').next()?.parse::<u32>().ok());
        let (Some(beyond), Some(partition)) = (&self.process.beyond, index) else { return false };
        let update = body["UpdateExpression"].as_str().unwrap_or_default().to_owned();
        let names = body["ExpressionAttributeNames"].as_object().cloned().unwrap_or_default();
        let mut changed = false;
        for (alias, _) in names.iter().filter(|(_, name)| *name == "safe" || *name == "greatest") {
            let value = update.split([' ', ',']).find_map(|part| part.strip_prefix(alias)?.strip_prefix('='));
            let Some(value) = value else { continue };
            let number = &mut body["ExpressionAttributeValues"][value]["N"];
            let Some(safe) = number.as_str().and_then(|safe| safe.parse().ok()) else { continue };
            *number = Value::from(beyond.stored(partition, Offset(safe)).to_string());
            changed = true;
        }
        changed
    }
}

/// Deletes the row instead of leaving a tombstone.
fn delete(statement: &mut Value) -> bool {
    let text = statement["Statement"].as_str().unwrap_or_default().to_owned();
    let is_removal = text.contains("gone") && !text.contains("liked_at\"=?") && !text.contains("'liked_at'");
    let Some(table) = text.split('"').nth(1).filter(|_| is_removal) else { return false };
    let key = format!(r#"DELETE FROM "{table}" WHERE "pk"=? AND "user_id"=?"#);
    let Some(parameters) = statement["Parameters"].as_array().cloned() else { return false };
    let (text, parameters) = if text.starts_with("INSERT") {
        (key, parameters[..2].to_vec())
    } else {
        (format!(r#"{key} AND "v"<?"#), parameters[parameters.len() - 3..].to_vec())
    };
    (statement["Statement"], statement["Parameters"]) = (Value::from(text), Value::from(parameters));
    true
}

/// Removes `part` from a statement that contains `said`, with the last parameter if it belongs to the part.
fn without(statement: &mut Value, said: &str, part: &str, is_last: bool) -> bool {
    let text = statement["Statement"].as_str().unwrap_or_default();
    if !text.contains(said) || !text.contains(part) {
        return false;
    }
    statement["Statement"] = Value::from(text.replace(part, ""));
    if is_last && let Some(parameters) = statement["Parameters"].as_array_mut() {
        parameters.pop();
    }
    true
}

/// Earlier answers to a process, by request. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Earlier(Arc<Mutex<BTreeMap<String, Value>>>);

impl Tampered {
    /// Applies the mutant to the answer to `asked`.
    pub(super) fn response(&self, operation: &str, asked: &Value, response: &mut HttpResponse) {
        let is_believed = match self.mutant {
            Mutant::LocalClock => true,
            Mutant::LossesByNumber => self.process.is_behind,
            _ => false,
        };
        if is_believed && self.process.role == Role::Streamer {
            response.headers_mut().remove("date");
        }
        if !response.status().is_success() || !matches!(operation, "GetItem" | "BatchGetItem" | "BatchExecuteStatement")
        {
            return;
        }
        let body = response.body().bytes().and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
        let Some(mut body) = body else { return };
        if operation == "BatchExecuteStatement" {
            if self.mutant == Mutant::RetryOutlives && self.process.role == Role::Consumer {
                self.retry_later(asked, &body);
            }
            return;
        }
        if self.answered(asked, &mut body) {
            let text = body.to_string();
            response.headers_mut().remove("x-amz-crc32");
            response.headers_mut().insert("content-length", text.len().to_string());
            *response.body_mut() = SdkBody::from(text);
        }
    }

    fn answered(&self, asked: &Value, body: &mut Value) -> bool {
        match (self.mutant, self.process.role) {
            (Mutant::NoGap, Role::Api) => counters(body, |counter| {
                counter.as_object_mut().map(|counter| counter.remove("gap"));
            }),
            (Mutant::LossesByNumber, Role::Api) => {
                let changed = counters(body, |counter| self.number_of_gap(counter));
                each_item(body, "checkpoints", |item| self.number_of_loss(item)) || changed
            }
            (Mutant::SafeUnpaired, Role::Api) => each_item(body, "checkpoints", stored_long_ago),
            (Mutant::StandingLast, Role::Api) if counters(body, |_| {}) => {
                let mut earlier = self.earlier.0.lock();
                if let Some(before) = earlier.insert(asked.to_string(), body.clone()) {
                    *body = before;
                }
                true
            }
            (Mutant::LossesByNumber, Role::Streamer) => forget_closed(body),
            (Mutant::ReplayClosed, Role::Recounter) => pass_replay(body),
            (Mutant::SettledBySending, Role::Recounter) => {
                counters(body, |counter| self.process.asked.settle(counter, &self.process.world.journal))
            }
            _ => false,
        }
    }

    fn number_of_gap(&self, counter: &mut Value) {
        let id = counter["post_id"]["S"].as_str().and_then(|id| id.parse::<CounterId>().ok());
        let number = id.zip(place(counter, "gap")).and_then(|(id, gap)| self.process.world.journal.announced(&id, gap));
        if let Some(number) = number {
            counter["gap"] = json!({"N": number.0.to_string()});
        }
    }

    fn number_of_loss(&self, item: &mut Value) {
        let partition = item["id"]["S"].as_str().and_then(|id| id.strip_prefix("changes/standing/")?.parse().ok());
        let number = partition.zip(place(item, "loss"));
        if let Some(number) = number.and_then(|(partition, loss)| self.process.world.journal.number(partition, loss)) {
            item["loss"] = json!({"N": number.0.to_string()});
        }
    }
}

/// Makes a claim say that everything is done up to its greatest offset.
fn pass_replay(body: &mut Value) -> bool {
    let item = body.get_mut("Item").and_then(Value::as_object_mut);
    item.is_some_and(|item| item.remove("replay").is_some())
}

/// Makes a claim appear stored before any standing, without the pairs that it keeps of before.
fn stored_long_ago(item: &mut Value) {
    let is_claim = item["id"]["S"].as_str().is_some_and(|id| id.starts_with("claim/"));
    let at = item["at"]["N"].as_str().filter(|_| is_claim).and_then(|at| at.parse::<u64>().ok());
    if let Some(at) = at {
        item["at"] = json!({"N": (at / 1_000).to_string()});
        item.as_object_mut().map(|item| item.remove("earlier"));
    }
}

/// Removes closed losses, so that the next one is numbered by the clock of the process that finds it.
fn forget_closed(body: &mut Value) -> bool {
    let losses = body.get_mut("Item").and_then(|item| item.get_mut("losses"));
    let Some(losses) = losses.and_then(|losses| losses["M"].as_object_mut()) else { return false };
    losses.retain(|_, loss| loss["M"].get("closed").is_none());
    true
}

fn place(item: &Value, name: &str) -> Option<Place> {
    item.get(name)?["N"].as_str()?.parse().ok().map(Place::from_stored)
}

/// Changes every counter in an answer, and returns whether there was one.
fn counters(body: &mut Value, change: impl FnMut(&mut Value)) -> bool {
    each_item(body, "like_counts", change)
}

/// Changes every item of a table in an answer to `BatchGetItem`, and returns whether the answer is about that table.
fn each_item(body: &mut Value, table: &str, change: impl FnMut(&mut Value)) -> bool {
    let items = body.get_mut("Responses").and_then(|tables| tables.get_mut(table)).and_then(Value::as_array_mut);
    let Some(items) = items else { return false };
    items.iter_mut().for_each(change);
    true
}
