//! The record of a run of the recount: what was asked, when it ran, its summary, and how these are stored.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{AuditRun, Summary};
use crate::time::UnixMillis;

/// One run of the recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    pub run: AuditRun,
    pub began: UnixMillis,
    pub ended: Option<UnixMillis>,
    /// What the run was asked to recount.
    pub scope: RunScope,
    /// Whether it only reports and corrects nothing.
    pub dry_run: bool,
    /// What it has found and corrected so far.
    pub summary: Summary,
}

/// What a run was asked to recount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunScope {
    /// All rows and all counters.
    Audit,
    /// What has changed since some time.
    Since,
    /// Some posts.
    Posts,
    /// What is queued.
    Queue,
}

/// Why a stored text is no record of a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRecord {
    /// There is no such scope.
    #[error("{0:?} is no scope of a run")]
    Scope(String),
    /// The record cannot be read.
    #[error("a run's record: {0}")]
    Malformed(String),
}

/// The suffix of the scope of a dry run.
const DRY: &str = ", dry run";

impl RunScope {
    const ALL: [Self; 4] = [Self::Audit, Self::Since, Self::Posts, Self::Queue];

    /// Returns the scope as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Since => "since",
            Self::Posts => "posts",
            Self::Queue => "queue",
        }
    }
}

/// The stored JSON.
#[derive(Serialize, Deserialize)]
struct Stored {
    dry_run: bool,
    summary: Summary,
}

impl RunRecord {
    /// Returns the scope as it is stored and shown.
    pub fn scope_text(&self) -> String {
        format!("{}{}", self.scope.label(), if self.dry_run { DRY } else { "" })
    }

    /// Returns the stored JSON: the summary, and whether it is a dry run. Its names are in alphabetical order.
    pub fn to_stored(&self) -> String {
        let stored = Stored { dry_run: self.dry_run, summary: self.summary.clone() };
        serde_json::to_value(stored).expect("strings and integers always serialise").to_string()
    }

    /// Reads a stored run.
    ///
    /// # Errors
    /// No version has written such a scope or record.
    pub fn from_stored(
        run: AuditRun,
        (began, ended): (UnixMillis, Option<UnixMillis>),
        scope: &str,
        record: &str,
    ) -> Result<Self, BadRecord> {
        let name = scope.strip_suffix(DRY).unwrap_or(scope);
        let known = RunScope::ALL.into_iter().find(|scope| scope.label() == name);
        let scope = known.ok_or_else(|| BadRecord::Scope(scope.to_owned()))?;
        let Stored { dry_run, summary } =
            serde_json::from_str(record).map_err(|error| BadRecord::Malformed(error.to_string()))?;
        Ok(Self { run, began, ended, scope, dry_run, summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Cause, Drift};

    const AUDIT: &str = r#"{"dry_run":false,"summary":{"alarms":0,"corrected":1,"cost":{"read_units":12,"write_units":30},"counters":7,"drift":{"drift":1,"total":1},"examples":[{"after":5,"before":3,"cause":"drift","key":"p#1#4"}],"gaps_closed":1,"left":0,"likes_added":2,"likes_taken":0,"misplaced":["\"u\" in \"p#3\""],"misplaced_rows":1,"proved":100,"rows":900,"totals_mended":1,"withheld":0}}"#;

    fn read(scope: &str, record: &str) -> Result<RunRecord, BadRecord> {
        RunRecord::from_stored(AuditRun::from(1), (UnixMillis(1), None), scope, record)
    }

    #[test]
    fn a_run_is_read_whole_and_written_the_same() {
        let record = read("audit", AUDIT).unwrap();
        assert_eq!((record.scope, record.dry_run), (RunScope::Audit, false));
        let drift = Drift { key: "p#1#4".to_owned(), before: 3, after: 5, cause: Cause::Drift };
        assert_eq!((record.summary.found(), &record.summary.examples), (2, &vec![drift]));
        assert_eq!((record.to_stored().as_str(), record.scope_text().as_str()), (AUDIT, "audit"));
        for scope in RunScope::ALL {
            let dry = RunRecord { dry_run: true, scope, ..record.clone() };
            assert_eq!(dry.scope_text(), format!("{}, dry run", scope.label()));
            assert_eq!(read(&dry.scope_text(), &dry.to_stored()), Ok(dry));
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
    fn what_a_summary_leaves_out_is_nothing() {
        let record = read("queue", r#"{"dry_run":true,"summary":{"posts":7,"rows":3}}"#).unwrap();
        assert_eq!(record.summary, Summary { counters: 7, rows: 3, ..Summary::default() });
    }
}
