//! Runs, queued row keys and audit segments as items.

use std::fmt::Display;

use tally_core::audit::{BadRecord, QueueReason, RunRecord};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::cursor::Cursor;
use super::super::item::{Item, Reader, flag, item, number, text};
use super::super::names::recounts::{ASKED, BEGAN, CURSOR, DONE, ENDED, REASON, SCOPE, SUMMARY, TTL, UNSETTLED};
use super::super::names::{PK, SK};
use super::{AuditSegment, Queued, SEASON, WEEK, expiry, padded};

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

pub(super) fn segment_item(pk: &str, segment: &AuditSegment, now: UnixMillis) -> Item {
    let mut encoded = item([
        (PK, text(pk)),
        (SK, text(padded(segment.index.into()))),
        (UNSETTLED, number(segment.unsettled)),
        (DONE, flag(segment.done)),
        (TTL, expiry(now, WEEK)),
    ]);
    encoded.extend(segment.cursor.as_ref().map(|cursor| (CURSOR.to_owned(), text(cursor.0.as_str()))));
    encoded
}

pub(super) fn segment(reader: &Reader<'_>) -> Outcome<AuditSegment> {
    Ok(AuditSegment {
        index: reader.required(SK)?,
        cursor: reader.text(CURSOR)?.map(|cursor| Cursor(cursor.to_owned())),
        unsettled: reader.required_number(UNSETTLED)?,
        done: reader.flag(DONE)?,
    })
}
