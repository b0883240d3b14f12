//! Runs and queued row keys as items.

use std::fmt::Display;

use tally_core::audit::{BadRecord, QueueReason, RunRecord};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, item, number, text};
use super::super::names::recounts::{ASKED, BEGAN, ENDED, REASON, SCOPE, SUMMARY, TTL};
use super::super::names::{PK, SK};
use super::{Queued, SEASON, expiry};

pub(super) fn run_item(pk: &str, record: &RunRecord) -> Item {
    let mut encoded = item([
        (PK, text(pk)),
        (SK, text(record.run.to_string())),
        (BEGAN, number(record.began)),
        (SCOPE, text(record.scope_text())),
        (SUMMARY, text(record.to_stored())),
        (TTL, expiry(record.began, SEASON)),
    ]);
    encoded.extend(record.ended.map(|ended| (ENDED.to_owned(), number(ended))));
    encoded
}

pub(super) fn run(reader: &Reader<'_>) -> Outcome<RunRecord> {
    let times = (UnixMillis(reader.required_number(BEGAN)?), reader.number(ENDED)?.map(UnixMillis));
    let (run, scope, record) = (reader.required(SK)?, reader.required_text(SCOPE)?, reader.required_text(SUMMARY)?);
    RunRecord::from_stored(run, times, scope, record).map_err(|error| match &error {
        BadRecord::Scope(_) => reader.malformed(SCOPE, error),
        BadRecord::Malformed(_) => reader.malformed(SUMMARY, error),
    })
}

pub(super) fn queued(reader: &Reader<'_>) -> Outcome<Queued> {
    let reason = reader.required_text(REASON)?;
    let reason = parse_reason(reason).ok_or_else(|| reader.malformed(REASON, unknown(reason)))?;
    Ok(Queued { key: reader.required(SK)?, reason, asked: reader.required_number(ASKED)? })
}

fn unknown(reason: &str) -> impl Display {
    format!("{reason:?} is no reason")
}

pub(super) fn reason_text(reason: QueueReason) -> &'static str {
    match reason {
        QueueReason::Drift => "drift",
        QueueReason::Negative => "negative",
        QueueReason::Doubt => "doubt",
        QueueReason::Asked => "asked",
    }
}

fn parse_reason(text: &str) -> Option<QueueReason> {
    let reasons = [QueueReason::Drift, QueueReason::Negative, QueueReason::Doubt, QueueReason::Asked];
    reasons.into_iter().find(|reason| reason_text(*reason) == text)
}
