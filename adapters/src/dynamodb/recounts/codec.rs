//! Runs, queued row keys and audit segments as items.

use std::fmt::Display;

use tally_core::ports::{AuditSegment, Cursor, Outcome, QueueReason, Queued, RunState, Worker};
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, flag, item, number, text};
use super::super::names::recounts::{ASKED, BEGAN, CURSOR, DONE, ENDED, REASON, SCOPE, SUMMARY, TTL, UNSETTLED};
use super::super::names::{PK, SK};
use super::{SEASON, WEEK, expiry, padded};

pub(super) fn run_item(pk: &str, state: &RunState) -> Item {
    let mut encoded = item([
        (PK, text(pk)),
        (SK, text(state.run.to_string())),
        (BEGAN, number(state.began)),
        (SCOPE, text(state.scope.as_str())),
        (SUMMARY, text(state.summary.as_str())),
        (TTL, expiry(state.began, SEASON)),
    ]);
    encoded.extend(state.ended.map(|ended| (ENDED.to_owned(), number(ended))));
    encoded
}

pub(super) fn run(reader: &Reader<'_>) -> Outcome<RunState> {
    Ok(RunState {
        run: reader.required(SK)?,
        began: UnixMillis(reader.required_number(BEGAN)?),
        ended: reader.number(ENDED)?.map(UnixMillis),
        scope: reader.required_text(SCOPE)?.to_owned(),
        summary: reader.required_text(SUMMARY)?.to_owned(),
    })
}

pub(super) fn share_item(pk: &str, worker: &Worker, share: &str, now: UnixMillis) -> Item {
    item([(PK, text(pk)), (SK, text(worker.0.as_str())), (SUMMARY, text(share)), (TTL, expiry(now, WEEK))])
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
        QueueReason::Suspect => "suspect",
        QueueReason::Asked => "asked",
    }
}

fn parse_reason(text: &str) -> Option<QueueReason> {
    let reasons = [QueueReason::Drift, QueueReason::Negative, QueueReason::Suspect, QueueReason::Asked];
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
