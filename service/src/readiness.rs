//! Readiness: whether a service can do its work, as a set of named conditions. The admin listener serves it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

/// A condition for the service to work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum Condition {
    Ready,
    /// It does not hold, for this reason.
    NotReady(String),
}

/// The conditions of a service. Clones share them. The service is ready if there is at least one condition and all
/// hold.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    prefix: String,
    conditions: Arc<watch::Sender<BTreeMap<String, Condition>>>,
}

impl Readiness {
    /// No conditions yet, and so not ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a scope of this readiness. Its conditions appear in the whole as `name/condition`, and it sees no
    /// others.
    #[must_use]
    pub fn scope(&self, name: &str) -> Self {
        Self { prefix: format!("{}{name}/", self.prefix), conditions: Arc::clone(&self.conditions) }
    }

    pub fn set(&self, name: &str, condition: Condition) {
        let name = format!("{}{name}", self.prefix);
        self.conditions.send_if_modified(|conditions| {
            if conditions.get(&name) == Some(&condition) {
                return false;
            }
            conditions.insert(name, condition);
            true
        });
    }

    pub fn ready(&self, name: &str) {
        self.set(name, Condition::Ready);
    }

    /// Sets a condition that does not hold, with the reason.
    pub fn not_ready(&self, name: &str, reason: impl Into<String>) {
        self.set(name, Condition::NotReady(reason.into()));
    }

    /// Removes a condition, such as that of a partition that is no longer assigned.
    pub fn forget(&self, name: &str) {
        let name = format!("{}{name}", self.prefix);
        self.conditions.send_if_modified(|conditions| conditions.remove(&name).is_some());
    }

    /// Removes every condition of this scope.
    pub fn clear(&self) {
        self.conditions.send_modify(|conditions| conditions.retain(|name, _| !name.starts_with(&self.prefix)));
    }

    /// Returns every condition of this scope, by name.
    pub fn report(&self) -> Report {
        self.report_of(&self.conditions.borrow())
    }

    pub async fn until_ready(&self) {
        // The channel is open, since this call borrows the sender.
        let _ = self.conditions.subscribe().wait_for(|conditions| self.report_of(conditions).ready).await;
    }

    fn report_of(&self, conditions: &BTreeMap<String, Condition>) -> Report {
        let mine = conditions.iter().filter_map(|(name, condition)| {
            let name = name.strip_prefix(&self.prefix)?;
            Some((name.to_owned(), condition.clone()))
        });
        let conditions: BTreeMap<_, _> = mine.collect();
        let ready = !conditions.is_empty() && conditions.values().all(|condition| *condition == Condition::Ready);
        Report { ready, conditions }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether every condition holds.
    pub ready: bool,
    pub conditions: BTreeMap<String, Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_requires_at_least_one_condition_and_that_all_hold() {
        let readiness = Readiness::new();
        assert!(!readiness.report().ready);
        readiness.ready("store");
        assert!(readiness.report().ready);
        readiness.not_ready("kafka", "no assignment");
        assert!(!readiness.report().ready);
        readiness.forget("kafka");
        assert!(readiness.report().ready);
    }
}
