//! Why a counter is not exact, or not right although nothing makes it inexact.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use serde::Serialize;
use tally_core::audit::RunRecord;
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, CounterKind, MemberKey, RowKey, Shard};
use tally_core::ports::{Gap, Ledger, LedgerEntry, Outcome, Rows, Runs};
use tally_core::time::UnixMillis;
use tally_core::window::Judgement;

use crate::desk::Desk;

/// Runs that are looked through for corrections that were not made, and lines of the ledger that say that one was.
const RUNS: u32 = 200;
const LINES: u32 = 1_000;
/// Rows that are named one by one.
const NAMED: usize = 5;

/// A reason, by its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(super) enum Reason {
    /// A loss of stream is open: no count is exact until an audit has gone through.
    Gap { gap: String, detail: String, opened: u64 },
    /// Two open stream shards fed it, or an update of it was refused.
    Suspect { key: String, switches: u64 },
    /// Rows whose weight cannot be read were set aside.
    Quarantine { key: String, rows: Vec<String>, more: bool },
    /// A set has fewer members than none.
    Negative { value: i64, shards: Vec<(String, i64)> },
    /// The total is not the sum over its shards.
    Total { value: i64, sum: Option<i64> },
    /// A recount found another number, and it takes a person to make so large a correction.
    Withheld { key: String, counted: i64, rows: i64, run: String },
    /// The item itself cannot be read.
    Damaged { detail: String },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { gap, detail, .. } => {
                write!(
                    f,
                    "gap: {detail} ({gap}); every count is inexact until an audit has gone through: tally audit start"
                )
            }
            Self::Suspect { key, switches } => write!(
                f,
                "suspect: {key} was fed by two open stream shards, or an update of it was refused, {switches} times: tally \
                 post recount"
            ),
            Self::Quarantine { key, rows, more } => {
                let (rows, more) = (rows.join(", "), if *more { " and more" } else { "" });
                write!(
                    f,
                    "quarantine: in {key} the weight of {rows}{more} cannot be read: mend or delete the row, then tally post recount"
                )
            }
            Self::Negative { value, shards } => {
                let shards: Vec<String> = shards.iter().map(|(key, rows)| format!("{key} = {rows}")).collect();
                write!(f, "negative: the total is {value} ({}): tally post recount", shards.join(", "))
            }
            Self::Total { value, sum } => {
                let sum = sum.map_or("more than 64 bits hold".to_owned(), |sum| sum.to_string());
                write!(f, "total: it is {value}, and its shards sum up to {sum}: an audit mends it")
            }
            Self::Withheld { key, counted, rows, run } => write!(
                f,
                "withheld: run {run} counted {rows} in {key}, where the counter has {counted}, and made no correction so large: \
                 tally-batch-recount --post --force"
            ),
            Self::Damaged { detail } => write!(f, "damaged: {detail}"),
        }
    }
}

/// What is read besides the counter to explain it.
#[derive(Debug, Default)]
struct Evidence {
    /// Members whose weight cannot be read, by the shard that they are in, and whether there may be more.
    unreadable: BTreeMap<Shard, (Vec<String>, bool)>,
    runs: Vec<RunRecord>,
    ledger: Vec<LedgerEntry>,
}

/// Why the counter that was `found` is not exact, with what has to be read to say so: `rows` rows at most.
pub(super) async fn of(
    desk: &Desk,
    id: &CounterId,
    found: &Outcome<Option<Counter>>,
    gaps: &[Gap],
    rows: usize,
) -> anyhow::Result<Vec<Reason>> {
    let mut evidence = Evidence {
        runs: desk.recounts.runs(RUNS).await.context("cannot read the runs")?,
        ledger: desk.recounts.ledger(id, LINES).await.context("cannot read the ledger")?,
        ..Evidence::default()
    };
    if let Ok(Some(counter)) = found {
        let suspect = counter.shards.iter().filter(|(_, tally)| tally.suspect).map(|(shard, _)| *shard);
        let mut left = rows;
        for shard in suspect {
            let unreadable = unreadable(desk, &RowKey { counter: id.clone(), shard }, &mut left).await?;
            evidence.unreadable.insert(shard, unreadable);
        }
    }
    Ok(reasons(id, found, gaps, &evidence))
}

/// Members of `key` whose weight cannot be read, and whether there may be more than these.
async fn unreadable(desk: &Desk, key: &RowKey, left: &mut usize) -> anyhow::Result<(Vec<String>, bool)> {
    let (mut named, mut after) = (Vec::new(), None);
    loop {
        let page = desk.rows.weights(key, after.as_ref()).await.context("cannot read the rows")?;
        *left = left.saturating_sub(page.items.len());
        let unreadable = page.items.iter().filter(|(_, weight)| weight.is_none());
        named.extend(unreadable.map(|(member, _)| shown(member)));
        after = page.next;
        let is_over = after.is_none();
        if is_over || *left == 0 || named.len() > NAMED {
            let more = named.len() > NAMED || !is_over;
            named.truncate(NAMED);
            return Ok((named, more));
        }
    }
}

fn shown(member: &MemberKey) -> String {
    format!("`{}`", member.to_string().escape_debug())
}

fn reasons(id: &CounterId, found: &Outcome<Option<Counter>>, gaps: &[Gap], evidence: &Evidence) -> Vec<Reason> {
    let gap = |gap: &Gap| Reason::Gap { gap: gap.id.0.clone(), detail: gap.detail.clone(), opened: gap.opened.0 };
    let mut reasons: Vec<Reason> = gaps.iter().map(gap).collect();
    match found {
        Err(fault) => reasons.push(Reason::Damaged { detail: fault.to_string() }),
        Ok(None) => {}
        Ok(Some(counter)) => {
            reasons.extend(doubts(id, counter, evidence));
            reasons.extend(impossible(id, counter));
        }
    }
    reasons.extend(withheld(id, evidence));
    reasons
}

/// Shards that may be wrong.
fn doubts(id: &CounterId, counter: &Counter, evidence: &Evidence) -> Vec<Reason> {
    let suspect = counter.shards.iter().filter(|(_, tally)| tally.suspect);
    let reason = suspect.map(|(shard, tally)| {
        let key = RowKey { counter: id.clone(), shard: *shard }.to_string();
        match evidence.unreadable.get(shard) {
            Some((rows, more)) if !rows.is_empty() => Reason::Quarantine { key, rows: rows.clone(), more: *more },
            _ => Reason::Suspect { key, switches: tally.switches },
        }
    });
    reason.collect()
}

/// Numbers that no rows can have.
fn impossible(id: &CounterId, counter: &Counter) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let value = counter.likes;
    if value < 0 && id.name.kind() == CounterKind::Set {
        let below = counter.shards.iter().filter(|(_, tally)| tally.rows < 0);
        let key = |shard: Shard| RowKey { counter: id.clone(), shard }.to_string();
        reasons
            .push(Reason::Negative { value, shards: below.map(|(shard, tally)| (key(*shard), tally.rows)).collect() });
    }
    if counter.sum() != Ok(value) {
        reasons.push(Reason::Total { value, sum: counter.sum().ok() });
    }
    reasons
}

/// Large corrections that the latest run to meet them has not made, and no run since.
fn withheld(id: &CounterId, evidence: &Evidence) -> Vec<Reason> {
    let mut met: BTreeMap<Shard, Reason> = BTreeMap::new();
    let withholding = evidence.runs.iter().filter(|run| !run.dry_run && run.summary.withheld > 0);
    for RunRecord { run, began, summary, .. } in withholding {
        for drift in &summary.examples {
            let Ok(key) = drift.key.parse::<RowKey>() else { continue };
            let judged = Judgement { before: drift.before, after: drift.after, suspect: false };
            if key.counter != *id || !judged.is_large() || is_corrected(&evidence.ledger, key.shard, *began) {
                continue;
            }
            let (counted, rows) = (drift.before, drift.after);
            let reason = Reason::Withheld { key: drift.key.clone(), counted, rows, run: run.to_string() };
            met.entry(key.shard).or_insert(reason);
        }
    }
    met.into_values().collect()
}

/// Whether the shard was proved or corrected at `since` or later.
fn is_corrected(ledger: &[LedgerEntry], shard: Shard, since: UnixMillis) -> bool {
    ledger.iter().any(|line| line.shard == Some(shard) && line.at >= since)
}

#[cfg(test)]
mod tests {
    use tally_core::audit::{AuditRun, Cause, Drift, RunScope, Summary};
    use tally_core::counter::ShardTally;
    use tally_core::fault::Fault;
    use tally_core::lineage::Loss;

    use super::*;

    fn id() -> CounterId {
        "p".parse().unwrap()
    }

    fn shard(k: u16) -> Shard {
        Shard::new(k).unwrap()
    }

    fn counter(likes: i64, shards: &[(u16, i64, bool)]) -> Outcome<Option<Counter>> {
        let tally = |rows, suspect| ShardTally { rows, suspect, switches: u64::from(suspect), ..ShardTally::default() };
        let shards = shards.iter().map(|(k, rows, suspect)| (shard(*k), tally(*rows, *suspect))).collect();
        Ok(Some(Counter { likes, shards, ..Counter::default() }))
    }

    fn kinds(found: &Outcome<Option<Counter>>, gaps: &[Gap], evidence: &Evidence) -> Vec<String> {
        let said = reasons(&id(), found, gaps, evidence);
        said.iter().map(|reason| reason.to_string().split(':').next().unwrap_or_default().to_owned()).collect()
    }

    fn run(withheld: u64, drift: Drift) -> RunRecord {
        RunRecord {
            run: AuditRun::beginning(UnixMillis(50), 1),
            began: UnixMillis(50),
            ended: Some(UnixMillis(60)),
            scope: RunScope::Audit,
            dry_run: false,
            audit: None,
            summary: Summary { withheld, examples: vec![drift], ..Summary::default() },
        }
    }

    fn drift(key: &str, before: i64, after: i64) -> Drift {
        Drift { key: key.to_owned(), before, after, cause: Cause::Drift }
    }

    #[test]
    fn a_right_counter_has_no_reason_to_be_inexact() {
        assert!(kinds(&counter(5, &[(0, 2, false), (3, 3, false)]), &[], &Evidence::default()).is_empty());
        assert!(kinds(&Ok(None), &[], &Evidence::default()).is_empty());
    }

    #[test]
    fn each_of_the_reasons_is_told_from_the_others() {
        let none = Evidence::default();
        let gap = Gap::of(&Loss::Trimmed("shard-1".into()), UnixMillis(9));
        assert_eq!(kinds(&Ok(None), &[gap], &none), ["gap"]);
        assert_eq!(kinds(&counter(2, &[(0, 2, true)]), &[], &none), ["suspect"]);
        assert_eq!(kinds(&counter(-1, &[(0, -3, false), (1, 2, false)]), &[], &none), ["negative"]);
        assert_eq!(kinds(&counter(9, &[(0, 2, false)]), &[], &none), ["total"]);
        assert_eq!(kinds(&Err(Fault::Poison("item p".into())), &[], &none), ["damaged"]);
        let unreadable =
            Evidence { unreadable: [(shard(0), (vec!["`u`".into()], false))].into(), ..Evidence::default() };
        assert_eq!(kinds(&counter(2, &[(0, 2, true)]), &[], &unreadable), ["quarantine"]);
        let withheld = Evidence { runs: vec![run(1, drift("p#0", 5_000, 2))], ..Evidence::default() };
        assert_eq!(kinds(&counter(5_000, &[(0, 5_000, false)]), &[], &withheld), ["withheld"]);
    }

    #[test]
    fn a_sum_may_be_negative() {
        let sum: CounterId = "p\u{1f}+views".parse().unwrap();
        assert!(reasons(&sum, &counter(-2, &[(0, -2, false)]), &[], &Evidence::default()).is_empty());
    }

    #[test]
    fn a_correction_that_was_made_since_or_was_not_large_or_is_of_another_post_was_not_withheld() {
        let line = |at: u64| LedgerEntry {
            counter: id(),
            shard: Some(shard(0)),
            at: UnixMillis(at),
            run: 7.into(),
            by: "w".into(),
            before: 5_000,
            after: 2,
            why: "asked".into(),
        };
        let of = |withheld, drift, at| {
            let evidence = Evidence { runs: vec![run(withheld, drift)], ledger: vec![line(at)], ..Evidence::default() };
            kinds(&Ok(None), &[], &evidence).len()
        };
        assert_eq!(of(1, drift("p#0", 5_000, 2), 49), 1, "the line is older than the run");
        assert_eq!(of(1, drift("p#0", 5_000, 2), 55), 0);
        assert_eq!(of(1, drift("p#0", 5, 2), 0), 0);
        assert_eq!(of(1, drift("other#0", 5_000, 2), 0), 0);
        assert_eq!(of(0, drift("p#0", 5_000, 2), 0), 0);
    }
}
