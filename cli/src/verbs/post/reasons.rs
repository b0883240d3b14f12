//! The reasons that `tally post show --explain` prints: why a counter is not exact or not fresh, or may be wrong
//! although it is called exact. `of` reads the runs of the recount, the counter's ledger and some rows.
//!
//! A partition's *standing* says up to when all changes are in its counters, and which losses are open. A shard, which
//! is a part of a counter's rows, is *in doubt* if a row's weight cannot be read, or if a recount has found the shard's
//! count wrong and has not corrected it yet.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Context;
use futures_util::stream::TryStreamExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use tally_adapters::dynamodb::LedgerEntry;
use tally_core::audit::RunRecord;
use tally_core::changes::LossNumber;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, RowKey, Shard};
use tally_core::recount::is_large;
use tally_core::time::UnixMillis;

use super::seen::{Found, Sources, Stands};
use crate::desk::Desk;
use crate::said::{self, ago};
use crate::verbs::audit::CLOSES;

/// How many runs are searched for withheld corrections, and how many lines of the ledger for corrections that were
/// made.
const RUNS: u32 = 200;
const LINES: u32 = 1_000;
/// The most rows of a shard that are named.
const NAMED: usize = 5;

/// A reason, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Reason {
    #[serde(skip)]
    pub(super) text: String,
    /// An object that has the kind of the reason in `reason`.
    #[serde(flatten)]
    pub(super) json: Value,
}

impl Reason {
    /// Creates a reason of a `kind`. The text for people begins with the kind, too.
    fn new(kind: &str, text: impl fmt::Display, mut json: Value) -> Self {
        json["reason"] = json!(kind);
        Self { text: format!("{kind}: {text}"), json }
    }

    /// Creates a reason that is told by a `detail` alone. The text for people ends with `advice`.
    fn told(kind: &str, detail: &str, advice: &str) -> Self {
        Self::new(kind, format!("{detail}{advice}"), json!({"detail": detail}))
    }

    /// It is not known up to when the rows are complete, or up to when their changes are counted.
    fn unknown(detail: &str) -> Self {
        Self::told("unknown", detail, ": tally status")
    }
}

/// What decides whether a time is fresh: it is at most `fresh_within` before `now`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    pub(super) now: UnixMillis,
    pub(super) fresh_within: Duration,
}

impl Age {
    pub(super) fn is_fresh(self, at: UnixMillis) -> bool {
        self.now.since(at) <= self.fresh_within
    }
}

/// Returns why the counter that was `found` is not exact or not fresh. Reads at most about `rows` rows to find it out.
pub(super) async fn of(
    desk: &Desk,
    found: &Found,
    stands: &Stands,
    age: Age,
    mut rows: usize,
) -> anyhow::Result<Vec<Reason>> {
    let Found { id, sources, counter, reserved } = found;
    let runs = desk.recounts.runs(RUNS).await.context("cannot read the runs")?;
    let ledger = desk.recounts.ledger(id, LINES).await.context("cannot read the ledger")?;
    let mut reasons = of_partition(stands, age);
    reasons.extend(of_rows(sources, age));
    match counter {
        // The counter's item cannot be read.
        Err(fault) => reasons.push(Reason::told("damaged", &fault.to_string(), "")),
        Ok(None) if !reserved => {
            let detail = "the table like_counts is not the one that counters were written to";
            reasons.push(Reason::told("lost", detail, ": tally adopt tables"));
        }
        Ok(None) => {}
        Ok(Some(counter)) => {
            reasons.extend(behind(counter, stands));
            for shard in &counter.doubt {
                let key = RowKey { counter: id.clone(), shard: *shard };
                reasons.push(doubt(&key, unreadable(desk, &key, &mut rows).await?));
            }
            reasons.extend(impossible(id, counter));
        }
    }
    reasons.extend(withheld(id, &runs, &ledger));
    Ok(reasons)
}

/// Reads at most `left` rows of `key`. Returns some members whose weight cannot be read, and whether there may be more.
async fn unreadable(desk: &Desk, key: &RowKey, left: &mut usize) -> anyhow::Result<(Vec<String>, bool)> {
    let (mut named, mut pages, mut is_over) = (Vec::new(), desk.weights(key), false);
    while !is_over && *left > 0 && named.len() <= NAMED {
        let rows = pages.try_next().await?;
        is_over = rows.is_none();
        let rows = rows.unwrap_or_default();
        *left = left.saturating_sub(rows.len());
        let unreadable = rows.iter().filter(|(_, weight)| weight.is_none());
        named.extend(unreadable.map(|(member, _)| format!("`{}`", member.to_string().escape_debug())));
    }
    let more = named.len() > NAMED || !is_over;
    named.truncate(NAMED);
    Ok((named, more))
}

/// Returns the reasons that hold for every counter of the partition.
fn of_partition(stands: &Stands, age: Age) -> Vec<Reason> {
    let Some((partition, standing)) = &stands.stored else {
        return vec![Reason::unknown("no change-streamer has counted anything of this partition")];
    };
    let loss = |number: &LossNumber| {
        let known = stands.losses.0.get(number);
        let (kind, detail) = known.map_or(("loss", "it is not stored any more"), |loss| (&loss.kind, &loss.what));
        let json = json!({"loss": number.0, "kind": kind, "detail": detail});
        Reason::new("loss", format!("{kind}: {detail} ({}); {CLOSES}", number.0), json)
    };
    let mut reasons: Vec<Reason> = standing.open.iter().map(loss).collect();
    match standing.as_of {
        None => {
            let detail = format!("not all stream shards are announced in partition {partition}");
            reasons.push(Reason::unknown(&detail));
        }
        Some(as_of) if !age.is_fresh(as_of) => {
            let text = format!(
                "partition {partition} of the log of changes is not counted up to now, so newer changes may be missing: no \
                 change-streamer runs, or it is behind: tally status"
            );
            reasons.push(Reason::new("late", text, json!({"partition": partition})));
        }
        Some(_) => {}
    }
    reasons
}

/// Returns a reason if the counter's rows are not complete up to now.
fn of_rows(sources: &Sources, age: Age) -> Option<Reason> {
    match sources.complete() {
        None => Some(Reason::unknown("no consumer has said up to when the rows of the post are complete")),
        Some(at) if !age.is_fresh(at) => {
            let detail = format!("they are complete up to {} ago", ago(age.now.since(at)));
            let json = json!({"complete": at.0, "detail": detail});
            Some(Reason::new("rows", format!("{detail}; consumers are paused, or behind: tally topic show"), json))
        }
        Some(_) => None,
    }
}

/// Returns a reason if the counter knows of a later loss than the standing does.
fn behind(counter: &Counter, stands: &Stands) -> Option<Reason> {
    let known = stands.stored.as_ref().and_then(|(_, standing)| standing.loss);
    let gap = counter.gap.filter(|gap| Some(*gap) > known)?.stored();
    let known = known.map(|known| known.stored());
    let text = format!(
        "the counter has changes behind the loss announced at {gap}, and its standing knows {}: it follows within seconds",
        known.map_or("none".to_owned(), |known| known.to_string())
    );
    Some(Reason::new("behind", text, json!({"gap": gap, "known": known})))
}

/// Returns the reason for a shard in doubt, by the members whose weight cannot be read.
fn doubt(key: &RowKey, (rows, more): (Vec<String>, bool)) -> Reason {
    let key = key.to_string();
    if rows.is_empty() {
        let text = format!(
            "a change in {key} could not be counted, or a recount found the count wrong and corrects it in seconds; if it \
             stays: tally post recount"
        );
        return Reason::new("doubt", text, json!({"key": key}));
    }
    let (named, and_more) = (rows.join(", "), if more { " and more" } else { "" });
    let text = format!(
        "in {key} the weight of {named}{and_more} cannot be read: mend or delete the row, then tally post recount"
    );
    Reason::new("quarantine", text, json!({"key": key, "rows": rows, "more": more}))
}

/// Returns a reason for each number that no rows can add up to.
fn impossible(id: &CounterId, counter: &Counter) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let value = counter.likes;
    if value < 0 && id.name.kind() == CounterKind::Set {
        let below = counter.parts.iter().filter(|(_, part)| **part < 0);
        let key = |shard: Shard| RowKey { counter: id.clone(), shard }.to_string();
        let shards: Vec<(String, i64)> = below.map(|(shard, part)| (key(*shard), *part)).collect();
        let named: Vec<String> = shards.iter().map(|(key, rows)| format!("{key} = {rows}")).collect();
        let text = format!("the total is {value} ({}): tally post recount", named.join(", "));
        reasons.push(Reason::new("negative", text, json!({"value": value, "shards": shards})));
    }
    if !counter.adds_up() {
        let sum: i128 = counter.parts.values().map(|part| i128::from(*part)).sum();
        let text =
            format!("it is {value}, and its shards sum up to {sum}, so one of them is wrong: tally post recount");
        reasons.push(Reason::new("total", text, json!({"value": value, "sum": said::sum(sum)})));
    }
    reasons
}

/// Returns a reason for each shard of which a run has withheld a large correction, by the newest such run, unless the
/// ledger has a line about the shard since that run began.
fn withheld(id: &CounterId, runs: &[RunRecord], ledger: &[LedgerEntry]) -> Vec<Reason> {
    let mut met: BTreeMap<Shard, Reason> = BTreeMap::new();
    let withholding = runs.iter().filter(|run| !run.dry_run && run.summary.withheld > 0);
    for RunRecord { run, began, summary, .. } in withholding {
        for drift in &summary.examples {
            let Ok(key) = drift.key.parse::<RowKey>() else { continue };
            let is_withheld = is_large(drift.before, drift.after.saturating_sub(drift.before));
            let is_corrected = ledger.iter().any(|line| line.shard == Some(key.shard) && line.at >= *began);
            if key.counter != *id || !is_withheld || is_corrected {
                continue;
            }
            let (key, counted, rows, run) = (key.shard, drift.before, drift.after, run.to_string());
            let text = format!(
                "run {run} counted {rows} in {}, where the counter has {counted}, and made no correction so large: tally \
                 recount with the post's id, --force and --yes",
                drift.key
            );
            let json = json!({"key": drift.key, "counted": counted, "rows": rows, "run": run});
            met.entry(key).or_insert_with(|| Reason::new("withheld", text, json));
        }
    }
    met.into_values().collect()
}

#[cfg(test)]
mod tests {
    use tally_core::audit::{AuditRun, Cause, Drift, RunScope, Summary};
    use tally_core::changes::{Place, Standing};

    use super::*;

    fn shard(k: u16) -> Shard {
        Shard::new(k).unwrap()
    }

    #[test]
    fn a_loss_that_the_standing_knows_is_no_reason_nor_is_a_sum_below_zero_and_a_standing_without_a_time_is_one() {
        let gap = Some(Place::from_stored(7));
        let counter = Counter { gap, likes: -2, parts: [(shard(0), -2)].into(), ..Counter::default() };
        let unannounced = Standing { loss: gap, ..Standing::default() };
        let stands = [None, Some((3, unannounced))].map(|stored| Stands { stored, ..Stands::default() });
        assert_eq!(stands.each_ref().map(|stands| behind(&counter, stands).is_some()), [true, false]);
        assert_eq!(impossible(&"p\u{1f}+views".parse().unwrap(), &counter), []);
        let age = Age { now: UnixMillis(6), fresh_within: Duration::from_millis(1) };
        for said in stands.map(|stands| of_partition(&stands, age)) {
            assert!(said.len() == 1 && said[0].json["reason"] == "unknown", "{said:?}");
        }
    }

    #[test]
    fn a_correction_that_was_made_since_or_was_not_large_or_is_of_another_post_was_not_withheld() {
        let line = |at: u64| LedgerEntry {
            counter: "p".parse().unwrap(),
            shard: Some(shard(0)),
            at: UnixMillis(at),
            run: 7.into(),
            by: "w".into(),
            before: 5_000,
            after: 2,
            why: "asked".into(),
        };
        let of = |is_withheld, key: &str, before, at| {
            let drift = Drift { key: key.to_owned(), before, after: 2, cause: Cause::Drift };
            let run = RunRecord {
                run: AuditRun::beginning(UnixMillis(50), 1),
                began: UnixMillis(50),
                ended: Some(UnixMillis(60)),
                scope: RunScope::Audit,
                dry_run: false,
                summary: Summary { withheld: is_withheld, examples: vec![drift], ..Summary::default() },
            };
            withheld(&"p".parse().unwrap(), &[run], &[line(at)]).len()
        };
        assert_eq!(of(1, "p#0", 5_000, 49), 1, "the line is older than the run");
        assert_eq!(of(1, "p#0", 5_000, 55), 0);
        assert_eq!(of(1, "p#0", 5, 0), 0);
        assert_eq!(of(1, "other#0", 5_000, 0), 0);
        assert_eq!(of(0, "p#0", 5_000, 0), 0);
    }
}
