//! A run of the recount as it is kept, and the one form in which its record is stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::{AuditRun, OpenAtStart, OpenGap, Plan, Summary};
use crate::ports::GapId;
use crate::time::UnixMillis;

/// A run of the recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Its id.
    pub run: AuditRun,
    /// When it began.
    pub began: UnixMillis,
    /// When it ended.
    pub ended: Option<UnixMillis>,
    /// What it was asked to do.
    pub scope: RunScope,
    /// Whether it only finds and reports.
    pub dry_run: bool,
    /// What an audit needs to be continued.
    pub audit: Option<AuditRecord>,
    /// What it has found and done so far.
    pub summary: Summary,
}

/// What a run was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunScope {
    /// Look at everything.
    Audit,
    /// Look at what has changed since some time.
    Since,
    /// Recount some posts.
    Posts,
    /// Recount what is queued.
    Queue,
}

/// What an audit needs to be continued by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// How it is cut.
    pub plan: Plan,
    /// What it may close.
    pub open: OpenAtStart,
}

/// A text that no version writes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRecord {
    /// The scope is none.
    #[error("{0:?} is no scope of a run")]
    Scope(String),
    /// The record cannot be read.
    #[error("a run's record: {0}")]
    Malformed(String),
}

/// What follows the scope of a dry run.
const DRY: &str = ", dry run";

impl RunScope {
    const ALL: [Self; 4] = [Self::Audit, Self::Since, Self::Posts, Self::Queue];

    /// The scope, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Since => "since",
            Self::Posts => "posts",
            Self::Queue => "queue",
        }
    }
}

/// The record as it is stored, as JSON. Runs that are no audits have neither plan nor what it may close.
#[derive(Serialize, Deserialize)]
struct Stored {
    dry_run: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closing: Option<StoredOpen>,
    summary: Summary,
}

#[derive(Serialize, Deserialize)]
struct StoredOpen {
    began: UnixMillis,
    /// Name and time of each gap.
    gaps: Vec<(String, UnixMillis)>,
    asked: Option<UnixMillis>,
}

impl RunRecord {
    /// The scope as it is stored and shown.
    pub fn scope_text(&self) -> String {
        format!("{}{}", self.scope.label(), if self.dry_run { DRY } else { "" })
    }

    /// Plan, what may be closed, and summary, as they are stored.
    pub fn to_stored(&self) -> String {
        let open = |AuditRecord { open: OpenAtStart { began, gaps, asked }, .. }: &AuditRecord| StoredOpen {
            began: *began,
            gaps: gaps.iter().map(|gap| (gap.id.0.clone(), gap.opened)).collect(),
            asked: *asked,
        };
        let stored = Stored {
            dry_run: self.dry_run,
            plan: self.audit.as_ref().map(|audit| audit.plan),
            closing: self.audit.as_ref().map(open),
            summary: self.summary.clone(),
        };
        json(&stored)
    }

    /// A run as it is stored.
    ///
    /// # Errors
    /// A scope or a record that no version has written.
    pub fn from_stored(
        run: AuditRun,
        (began, ended): (UnixMillis, Option<UnixMillis>),
        scope: &str,
        record: &str,
    ) -> Result<Self, BadRecord> {
        let name = scope.strip_suffix(DRY).unwrap_or(scope);
        let known = RunScope::ALL.into_iter().find(|scope| scope.label() == name);
        let scope = known.ok_or_else(|| BadRecord::Scope(scope.to_owned()))?;
        let Stored { dry_run, plan, closing, summary } = parse(record)?;
        let open = |StoredOpen { began, gaps, asked }| OpenAtStart {
            began,
            gaps: gaps.into_iter().map(|(id, opened)| OpenGap { id: GapId(id), opened }).collect(),
            asked,
        };
        let audit = plan.zip(closing).map(|(plan, closing)| AuditRecord { plan, open: open(closing) });
        Ok(Self { run, began, ended, scope, dry_run, audit, summary })
    }
}

impl Summary {
    /// The summary as it is stored.
    pub fn to_stored(&self) -> String {
        json(self)
    }

    /// A summary as it is stored.
    ///
    /// # Errors
    /// A text that no version has written.
    pub fn from_stored(text: &str) -> Result<Self, BadRecord> {
        parse(text)
    }
}

/// Names in alphabetical order, as every version has written them.
fn json(stored: &impl Serialize) -> String {
    serde_json::to_value(stored).map(|value: Value| value.to_string()).expect("strings and integers always serialise")
}

fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, BadRecord> {
    serde_json::from_str(text).map_err(|error| BadRecord::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Cause, Drift};

    /// As the versions before this one have written them.
    const AUDIT: &str = r#"{"closing":{"asked":1700000000007,"began":1700000000001,"gaps":[["trimmed/shardId-1",1700000000000],["refused/counters",5]]},"dry_run":false,"plan":{"counters":8,"rows":32,"since":null},"summary":{"alarms":0,"corrected":1,"cost":{"read_units":12,"write_units":30},"drift":{"drift":1,"total":1},"examples":[{"after":5,"before":3,"cause":"drift","key":"p#1#4"}],"gaps_closed":1,"left":0,"likes_added":2,"likes_taken":0,"misplaced":["\"u\" in \"p#3\""],"misplaced_rows":1,"posts":7,"proved":100,"rows":900,"totals_mended":1,"windows":2,"windows_repeated":0,"withheld":0}}"#;
    const QUEUE: &str = r#"{"dry_run":true,"summary":{"alarms":0,"corrected":0,"cost":{"read_units":0,"write_units":0},"drift":{},"examples":[],"gaps_closed":0,"left":0,"likes_added":0,"likes_taken":0,"misplaced":[],"misplaced_rows":0,"posts":0,"proved":0,"rows":0,"totals_mended":0,"windows":0,"windows_repeated":0,"withheld":0}}"#;

    fn read(scope: &str, record: &str) -> Result<RunRecord, BadRecord> {
        RunRecord::from_stored(AuditRun::from(1), (UnixMillis(1), None), scope, record)
    }

    #[test]
    fn an_audit_stored_by_an_earlier_version_is_read_whole_and_written_the_same() {
        let record = read("audit", AUDIT).unwrap();
        assert_eq!((record.scope, record.dry_run), (RunScope::Audit, false));
        let audit = record.audit.as_ref().unwrap();
        assert_eq!(audit.plan, Plan { rows: 32, counters: 8, since: None });
        let gap = |id: &str, opened| OpenGap { id: GapId(id.to_owned()), opened: UnixMillis(opened) };
        let gaps = vec![gap("trimmed/shardId-1", 1_700_000_000_000), gap("refused/counters", 5)];
        let (began, asked) = (UnixMillis(1_700_000_000_001), Some(UnixMillis(1_700_000_000_007)));
        assert_eq!(audit.open, OpenAtStart { began, gaps, asked });
        let drift = Drift { key: "p#1#4".to_owned(), before: 3, after: 5, cause: Cause::Drift };
        assert_eq!((record.summary.found(), &record.summary.examples), (2, &vec![drift]));
        assert_eq!((record.to_stored().as_str(), record.scope_text().as_str()), (AUDIT, "audit"));
    }

    #[test]
    fn a_run_that_is_no_audit_has_nothing_to_continue() {
        let record = read("queue, dry run", QUEUE).unwrap();
        assert_eq!((record.scope, record.dry_run, record.audit.is_none()), (RunScope::Queue, true, true));
        assert_eq!((record.to_stored().as_str(), record.scope_text().as_str()), (QUEUE, "queue, dry run"));
    }

    #[test]
    fn every_scope_is_read_back() {
        for scope in RunScope::ALL {
            assert_eq!(read(scope.label(), QUEUE).unwrap().scope, scope);
        }
    }

    #[test]
    fn what_no_version_writes_is_told() {
        assert_eq!(read("everything", AUDIT), Err(BadRecord::Scope("everything".to_owned())));
        for torn in ["", "{}", r#"{"dry_run":true,"#, "[]"] {
            assert!(matches!(read("audit", torn), Err(BadRecord::Malformed(_))), "{torn}");
        }
    }

    #[test]
    fn a_summary_keeps_what_it_says_and_takes_what_an_earlier_version_left_out_for_nothing() {
        let summary = read("audit", AUDIT).unwrap().summary;
        assert_eq!(Summary::from_stored(&summary.to_stored()), Ok(summary));
        let rows = Summary { rows: 3, ..Summary::default() };
        assert_eq!(Summary::from_stored(r#"{"rows":3}"#), Ok(rows));
    }
}
