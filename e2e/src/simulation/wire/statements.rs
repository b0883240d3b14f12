//! What a mutant makes of a consumer's statements.

use std::time::Duration;

use serde_json::{Value, json};
use tally_core::topic::Offset;
use tally_service::{Stage, Stop};

use super::super::instance::Role;
use super::super::mutant::Mutant;
use super::Tampered;
use crate::undisturbed;

/// How long a retry goes on that knows of no newer event: longer than a short-lived tombstone is kept.
const OUTLIVES: Duration = Duration::from_secs(61 * 60);

impl Tampered {
    /// Whether its requests are taken whenever they were signed.
    pub(super) fn is_signed_anew(&self) -> bool {
        self.mutant == Mutant::Sleeper && self.role == Role::Consumer
    }

    /// Changes the statements of a request of a consumer; whether any was.
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

    /// What of a request of a consumer did not become a row, although it is a like, is sent once more after a long time, whatever
    /// has come meanwhile.
    pub(super) fn retry_later(&self, asked: &Value, body: &Value) {
        let outcomes = body["Responses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let statements = asked["Statements"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (statement, outcome) in statements.iter().zip(outcomes) {
            let text = statement["Statement"].as_str().unwrap_or_default();
            let code = outcome["Error"]["Code"].as_str().unwrap_or_default();
            if !text.starts_with("INSERT") || !text.contains("'liked_at'") || !code.starts_with("Throttl") {
                continue;
            }
            let (store, again) = (self.store.clone(), json!({"Statements": [statement]}));
            self.host.worker(Stage::Output, "retry", move |_: Stop| async move {
                tokio::time::sleep(OUTLIVES).await;
                undisturbed::send(&store, "BatchExecuteStatement", &again).await;
                Ok(())
            });
        }
    }

    /// Stores as done what was read.
    pub(super) fn store_beyond(&self, body: &mut Value) -> bool {
        let id = body["Key"]["id"]["S"].as_str().unwrap_or_default();
        let index = id.strip_prefix("claim/").and_then(|place| place.rsplit('/').next()?.parse::<u32>().ok());
        let (Some(beyond), Some(partition)) = (&self.beyond, index) else { return false };
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

/// Deletes the row in the place of leaving a tombstone.
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

/// Leaves a part out of a statement in which something is said, with the last parameter if it is that of the part.
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
