//! TransactWriteItems and TransactGetItems: all actions or none, with a reason per action in the latter case.

use std::hash::Hasher;

use hashbrown::HashSet;
use serde::Deserialize;
use xxhash_rust::xxh64::Xxh64;

use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::json::Writer;
use crate::limits::{TOKEN_CHARS, TRANSACTION_ACTIONS, TRANSACTION_BYTES};
use crate::value::Item;

use super::capacity::{Consumed, Report, read_halves, write_halves};
use super::items::refuse_metrics;
use super::params::{Names, check_table_name, parse_projection, required, wrong_length};
use super::write::{Action, Parameters, Verb};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TransactWriteItems {
    #[serde(default)]
    pub(super) transact_items: Vec<TransactWriteItem>,
    client_request_token: Option<String>,
    return_consumed_capacity: Option<String>,
    return_item_collection_metrics: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TransactWriteItem {
    put: Option<Parameters>,
    update: Option<Parameters>,
    delete: Option<Parameters>,
    condition_check: Option<Parameters>,
}

impl TransactWriteItem {
    /// The only member that is set.
    fn into_parameters(self) -> Result<(Verb, Parameters), Error> {
        let members = [
            (Verb::Put, self.put),
            (Verb::Update, self.update),
            (Verb::Delete, self.delete),
            (Verb::Check, self.condition_check),
        ];
        let mut set = members.into_iter().filter_map(|(verb, given)| Some((verb, given?)));
        let (Some((verb, parameters)), None) = (set.next(), set.next()) else {
            return Err(Error::validation("TransactItems can only contain one of Check, Put, Update or Delete"));
        };
        match verb {
            Verb::Update if parameters.update_expression.is_none() => required("updateExpression", None),
            Verb::Check if parameters.condition_expression.is_none() => required("conditionExpression", None),
            _ => Ok((verb, parameters)),
        }
    }
}

/// Executes up to a hundred writes, all or none.
pub(super) fn write(request: TransactWriteItems, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    refuse_metrics(request.return_item_collection_metrics.as_deref())?;
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    check_actions(request.transact_items.len())?;
    let token = request.client_request_token;
    if token.as_ref().is_some_and(|token| !(1..=TOKEN_CHARS).contains(&token.len())) {
        return Err(wrong_length("clientRequestToken", TOKEN_CHARS));
    }
    // Requests with the same parameters have the same fingerprint, however they are written.
    let mut fingerprint = Xxh64::new(0);
    let mut actions = Vec::with_capacity(request.transact_items.len());
    let mut bytes = 0;
    for item in request.transact_items {
        let (verb, parameters) = item.into_parameters()?;
        check_table_name(&parameters.table_name)?;
        bytes += parameters.bytes();
        if token.is_some() {
            parameters.fingerprint(verb, &mut fingerprint);
        }
        actions.push(parameters.parse(verb)?);
    }
    if bytes > TRANSACTION_BYTES {
        return Err(Error::validation("Transaction request payload size cannot exceed 4 MB"));
    }
    let fingerprint = fingerprint.finish();
    let keys = keys_of(&actions, engine)?;
    let replayed = match &token {
        Some(token) => engine.tokens.is_done(token, fingerprint, engine.now)?,
        None => false,
    };
    let consumed = if replayed { replay(&actions, &keys, engine)? } else { carry_out(actions, &keys, engine)? };
    if let Some(token) = token.filter(|_| !replayed) {
        engine.tokens.remember(token, fingerprint, engine.now);
    }
    let kind = if replayed { "ReadCapacityUnits" } else { "WriteCapacityUnits" };
    Ok(Writer::document(|out| consumed.write_all(out, report, Some(kind))))
}

/// The keys of a transaction's items, which must all be different.
///
/// The first action that is invalid for its table cancels the transaction before any condition is evaluated.
fn keys_of(actions: &[Action], engine: &Engine) -> Result<Vec<Key>, Error> {
    let mut seen = HashSet::with_capacity(actions.len());
    let mut keys = Vec::with_capacity(actions.len());
    for (nth, action) in actions.iter().enumerate() {
        let key = action.key(engine.table(&action.table)?);
        let key = key.map_err(|error| Error::cancelled_by(nth, actions.len(), error))?;
        if !seen.insert((action.table.as_str(), key.clone())) {
            return Err(Error::validation("Transaction request cannot include multiple operations on one item"));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// Cancels a transaction with hot keys, with a reason for each of them.
fn refuse_hot<'a>(used: Use, places: impl Iterator<Item = (&'a str, &'a Key)>, engine: &Engine) -> Result<(), Error> {
    let reasons = places.map(|(table, key)| engine.admit(used, table, key).err().map(|_| Error::throttled()));
    let reasons: Vec<Option<Error>> = reasons.collect();
    if reasons.iter().any(Option::is_some) { Err(Error::cancelled(reasons)) } else { Ok(()) }
}

/// Executes all actions, or none.
fn carry_out(mut actions: Vec<Action>, keys: &[Key], engine: &mut Engine) -> Result<Consumed, Error> {
    refuse_hot(Use::Write, actions.iter().map(|action| action.table.as_str()).zip(keys), engine)?;
    let mut plans = Vec::with_capacity(actions.len());
    for (action, key) in actions.iter_mut().zip(keys) {
        plans.push(action.plan(key, engine.table(&action.table)?));
    }
    if plans.iter().any(Result::is_err) {
        // The transaction was prepared, which is half of its cost.
        for (action, key) in actions.iter().zip(keys) {
            let size = engine.table(&action.table)?.rows.get(key, None).map_or(0, Image::size);
            engine.spend(Use::Write, &action.table, key, write_halves(size));
        }
        return Err(Error::cancelled(plans.into_iter().map(Result::err).collect()));
    }
    let mut consumed = Consumed::default();
    for ((action, key), plan) in actions.iter().zip(keys).zip(plans.into_iter().flatten()) {
        consumed.pay(Use::Write, &action.table, key, 2 * write_halves(plan.bytes()), engine);
        if action.verb != Verb::Check {
            engine.write(&action.table, key, plan.new.as_ref())?;
        }
    }
    Ok(consumed)
}

/// The cost of a transaction that was executed before: that of reading its items.
fn replay(actions: &[Action], keys: &[Key], engine: &Engine) -> Result<Consumed, Error> {
    let mut consumed = Consumed::default();
    for (action, key) in actions.iter().zip(keys) {
        let size = engine.table(&action.table)?.rows.get(key, None).map_or(0, Image::size);
        consumed.add(&action.table, 2 * read_halves(size, true));
    }
    Ok(consumed)
}

fn check_actions(count: usize) -> Result<(), Error> {
    let fits = (1..=TRANSACTION_ACTIONS).contains(&count);
    if fits { Ok(()) } else { Err(wrong_length("transactItems", TRANSACTION_ACTIONS)) }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TransactGetItems {
    #[serde(default)]
    pub(super) transact_items: Vec<TransactGetItem>,
    return_consumed_capacity: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TransactGetItem {
    get: Option<Get>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Get {
    #[serde(default)]
    table_name: String,
    key: Option<Item>,
    projection_expression: Option<String>,
    expression_attribute_names: Names,
}

/// Reads up to a hundred items at one point in time.
pub(super) fn get(request: TransactGetItems, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    check_actions(request.transact_items.len())?;
    let mut seen = HashSet::new();
    let count = request.transact_items.len();
    let mut read = Vec::with_capacity(count);
    let mut bytes = 0;
    for (nth, item) in request.transact_items.into_iter().enumerate() {
        let get = required("get", item.get)?;
        check_table_name(&get.table_name)?;
        let projection = parse_projection(get.projection_expression.as_deref(), get.expression_attribute_names)?;
        let table = engine.table(&get.table_name)?;
        let key = table.schema.key_of(&required("key", get.key)?);
        let key = key.map_err(|error| Error::cancelled_by(nth, count, error))?;
        let image = table.rows.get(&key, None).cloned();
        bytes += image.as_ref().map_or(0, Image::size);
        if !seen.insert((get.table_name.clone(), key.clone())) {
            return Err(Error::validation("Transaction request cannot include multiple operations on one item"));
        }
        read.push((get.table_name, key, image, projection));
    }
    if bytes > TRANSACTION_BYTES {
        return Err(Error::validation(
            "The items of the transaction together have exceeded the maximum allowed size of 4 MB",
        ));
    }
    refuse_hot(Use::Read, read.iter().map(|(table, key, ..)| (table.as_str(), key)), engine)?;
    let mut consumed = Consumed::default();
    for (table, key, image, _) in &read {
        let halves = 2 * read_halves(image.as_ref().map_or(0, Image::size), true);
        consumed.pay(Use::Read, table, key, halves, engine);
    }
    Ok(Writer::document(|out| {
        out.key("Responses").array(|out| {
            for (.., image, projection) in &read {
                out.object(|out| {
                    if let Some(image) = image {
                        out.key("Item").parts(image, projection.as_ref());
                    }
                });
            }
        });
        consumed.write_all(out, report, Some("ReadCapacityUnits"));
    }))
}
