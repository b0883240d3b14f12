//! What a mutant makes of what it is answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};
use tally_core::changes::Place;
use tally_core::ids::CounterId;

use super::super::instance::Role;
use super::super::mutant::Mutant;
use super::Tampered;

/// What a process was answered before, by what it asked; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Earlier(Arc<Mutex<BTreeMap<String, Value>>>);

impl Tampered {
    /// Does what the mutant does with the answer to `asked`.
    pub(super) fn response(&self, operation: &str, asked: &Value, response: &mut HttpResponse) {
        let is_believed = match self.mutant {
            Mutant::LocalClock => true,
            Mutant::LossesByNumber => self.is_behind,
            _ => false,
        };
        if is_believed && self.role == Role::Streamer {
            response.headers_mut().remove("date");
        }
        if !response.status().is_success() || !matches!(operation, "GetItem" | "BatchGetItem" | "BatchExecuteStatement")
        {
            return;
        }
        let body = response.body().bytes().and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
        let Some(mut body) = body else { return };
        if operation == "BatchExecuteStatement" {
            if self.mutant == Mutant::RetryOutlives && self.role == Role::Consumer {
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
        match (self.mutant, self.role) {
            (Mutant::NoGap, Role::Api) => counters(body, |counter| {
                counter.as_object_mut().map(|counter| counter.remove("gap"));
            }),
            (Mutant::LossesByNumber, Role::Api) => {
                let changed = counters(body, |counter| self.number_of_gap(counter));
                each(body, "checkpoints", |item| self.number_of_loss(item)) || changed
            }
            (Mutant::SafeUnpaired, Role::Api) => each(body, "checkpoints", stored_long_ago),
            (Mutant::StandingLast, Role::Api) if counters(body, |_| {}) => {
                let mut earlier = self.earlier.0.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(before) = earlier.insert(asked.to_string(), body.clone()) {
                    *body = before;
                }
                true
            }
            (Mutant::LossesByNumber, Role::Streamer) => forget_closed(body),
            (Mutant::ReplayClosed, Role::Recounter) => pass_replay(body),
            (Mutant::SettledBySending, Role::Recounter) => {
                counters(body, |counter| self.asked.settle(counter, &self.journal))
            }
            _ => false,
        }
    }

    fn number_of_gap(&self, counter: &mut Value) {
        let id = counter["post_id"]["S"].as_str().and_then(|id| id.parse::<CounterId>().ok());
        let number = id.zip(place(counter, "gap")).and_then(|(id, gap)| self.journal.announced(&id, gap));
        if let Some(number) = number {
            counter["gap"] = json!({"N": number.0.to_string()});
        }
    }

    fn number_of_loss(&self, item: &mut Value) {
        let partition = item["id"]["S"].as_str().and_then(|id| id.strip_prefix("changes/standing/")?.parse().ok());
        let number = partition.zip(place(item, "loss"));
        if let Some(number) = number.and_then(|(partition, loss)| self.journal.number(partition, loss)) {
            item["loss"] = json!({"N": number.0.to_string()});
        }
    }
}

/// A claim says that everything is done that ever was.
fn pass_replay(body: &mut Value) -> bool {
    let item = body.get_mut("Item").and_then(Value::as_object_mut);
    item.is_some_and(|item| item.remove("replay").is_some())
}

/// A claim was stored before any standing.
fn stored_long_ago(item: &mut Value) {
    let is_claim = item["id"]["S"].as_str().is_some_and(|id| id.starts_with("claim/"));
    let at = item["at"]["N"].as_str().filter(|_| is_claim).and_then(|at| at.parse::<u64>().ok());
    if let Some(at) = at {
        item["at"] = json!({"N": (at / 1_000).to_string()});
    }
}

/// Losses that are closed are not there any more: the next one is numbered by the clock of its finder alone.
fn forget_closed(body: &mut Value) -> bool {
    let losses = body.get_mut("Item").and_then(|item| item.get_mut("losses"));
    let Some(losses) = losses.and_then(|losses| losses["M"].as_object_mut()) else { return false };
    losses.retain(|_, loss| loss["M"].get("closed").is_none());
    true
}

fn place(item: &Value, name: &str) -> Option<Place> {
    item.get(name)?["N"].as_str()?.parse().ok().map(Place::from_stored)
}

/// Changes every counter in an answer; whether there was one.
fn counters(body: &mut Value, change: impl FnMut(&mut Value)) -> bool {
    each(body, "like_counts", change)
}

/// Changes every item of a table in an answer to `BatchGetItem`; whether the answer is about that table.
fn each(body: &mut Value, table: &str, change: impl FnMut(&mut Value)) -> bool {
    let items = body.get_mut("Responses").and_then(|tables| tables.get_mut(table)).and_then(Value::as_array_mut);
    let Some(items) = items else { return false };
    items.iter_mut().for_each(change);
    true
}
