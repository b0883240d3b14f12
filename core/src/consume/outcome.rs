//! A transaction's outcome in words: for a metric's label, a log line, and the operator who has to act on it.

use super::effect::Cause;
use crate::batch::Change;
use crate::fence::{Commit, Refused};
use crate::ids::ShardCount;

/// Why the same transaction is sent again.
pub(super) fn class_of(outcome: &Commit) -> &'static str {
    match outcome {
        Commit::Cancelled(reasons) if reasons.contains(&Refused::Throttled) => "throttled",
        _ => "conflict",
    }
}

/// Why the fence is read again.
pub(super) fn cause_of(outcome: &Commit) -> Cause {
    match outcome {
        Commit::Cancelled(reasons) if reasons.contains(&Refused::Condition) => Cause::Condition,
        Commit::Cancelled(_) => Cause::Unclear,
        _ => Cause::Unknown,
    }
}

/// An outcome in a few words.
pub(super) fn summary(outcome: &Commit) -> String {
    described(outcome, |item| format!("item {item}"))
}

/// An outcome for the operator: row keys by name, since it is one of those that is full.
pub(super) fn refusal(outcome: &Commit, changes: &[Change<'_>], partition: u32, shards: ShardCount) -> String {
    described(outcome, |item| {
        let change = item.checked_sub(1).and_then(|row| changes.get(row));
        let key = change.map(|change| change.row_key(partition, shards));
        key.map_or("the fence".to_owned(), |key| format!("row key `{key}`"))
    })
}

/// A hundred reasons are mostly `Nothing`; item 0 is the fence.
fn described(outcome: &Commit, name: impl Fn(usize) -> String) -> String {
    match outcome {
        Commit::Done => "done".to_owned(),
        Commit::Invalid(text) | Commit::Fatal(text) | Commit::Unknown(text) => text.clone(),
        Commit::Cancelled(reasons) => {
            let named: Vec<String> = reasons
                .iter()
                .enumerate()
                .filter(|(_, reason)| **reason != Refused::Nothing)
                .take(3)
                .map(|(item, reason)| format!("{}: {reason:?}", name(item)))
                .collect();
            format!("cancelled: {}", named.join(", "))
        }
    }
}
