//! The task that keeps a process a member of a Kafka consumer group. It starts a worker for each assigned partition,
//! and decides for each error of the group whether the process is ready, and whether it ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tally_core::fault::Fault;
use tally_core::ports::log::{Rebalance, Revocation};
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Readiness, Seldom, Stop, Task};
use tokio::time::Instant;

/// The readiness condition: whether this process is a member and is not refused.
const CONDITION: &str = "kafka";

/// How often an error that is repeated is logged.
const REMINDER: Duration = Duration::from_secs(10);

/// How long a login or a permission may be refused to a member that had it. Then the process ends, so that it is
/// started again with fresh credentials.
const PATIENCE: Duration = Duration::from_secs(300);

/// After this long without a repetition a refusal has passed. The client repeats one that lasts at least every half
/// minute.
const QUIET: Duration = Duration::from_secs(60);

/// Whether this member has joined its group, and whether the group refuses it.
struct GroupHealth {
    readiness: Readiness,
    /// Whether partitions were assigned at least once, which shows that the settings are right.
    joined: bool,
    /// Since when the group refuses it, and when it last did.
    refused: Option<(Instant, Instant)>,
    logged: Seldom,
}

impl GroupHealth {
    /// The state of a process that has joined no group yet.
    fn new(readiness: &Readiness) -> Self {
        readiness.not_ready(CONDITION, "waiting for an assignment");
        Self { readiness: readiness.clone(), joined: false, refused: None, logged: Seldom::default() }
    }

    /// Notes that partitions were assigned, or that a refusal has passed.
    fn joined(&mut self) {
        (self.joined, self.refused) = (true, None);
        self.readiness.ready(CONDITION);
    }

    /// Notes that the group gave this member up. Nothing is read until it is a member again.
    fn expelled(&self) {
        self.readiness.not_ready(CONDITION, "no member of the group any more: waiting to join it again");
    }

    /// Waits until a refusal has passed.
    async fn refusal_passed(&self) {
        match &self.refused {
            Some((_, last)) => tokio::time::sleep_until(*last + QUIET).await,
            None => std::future::pending().await,
        }
    }

    /// Notes an error. A broker that does not answer is waited for. A refusal ends the process if it comes before the
    /// first assignment, or lasts.
    ///
    /// # Errors
    /// The refusal.
    fn failed(&mut self, fault: &Fault) -> anyhow::Result<()> {
        if fault.is_retryable() {
            if !self.joined {
                self.readiness.not_ready(CONDITION, format!("waiting: {fault}"));
            }
            if self.logged.is_due(REMINDER) {
                tracing::warn!(dependency = "kafka", error = %fault, "waiting for dependency");
            }
            return Ok(());
        }
        let now = Instant::now();
        let since = self.refused.map_or(now, |(since, _)| since);
        let lasts = matches!(fault, Fault::Fatal(_)) && now.duration_since(since) >= PATIENCE;
        if !self.joined || lasts {
            bail!("cannot use kafka: {fault}");
        }
        self.refused = Some((since, now));
        self.readiness.not_ready(CONDITION, fault.to_string());
        if self.logged.is_due(REMINDER) {
            tracing::error!(dependency = "kafka", error = %fault, "kafka refuses");
        }
        Ok(())
    }
}

/// The task. It polls Kafka and does nothing else, so that a slow store cannot cost the membership.
pub struct Membership {
    pub intake: Box<dyn Intake>,
    pub readiness: Readiness,
    /// Starts a task that works on an assigned partition.
    pub begin: Box<dyn Fn(Arc<dyn OwnedPartition>) + Send>,
    /// Called with each rebalance.
    pub on_rebalance: fn(&Rebalance),
    /// Called with each error.
    pub on_fault: fn(&Fault),
}

impl Membership {
    /// Returns the task for `intake`, which calls `begin` with each assigned partition. Rebalances and errors call
    /// nothing unless `on_rebalance` or `on_fault` is set.
    pub fn new(
        intake: Box<dyn Intake>,
        readiness: &Readiness,
        begin: impl Fn(Arc<dyn OwnedPartition>) + Send + 'static,
    ) -> Self {
        let (readiness, begin) = (readiness.clone(), Box::new(begin));
        Self { intake, readiness, begin, on_rebalance: |_| {}, on_fault: |_| {} }
    }

    /// # Errors
    /// The group is another deployment's, too.
    fn rebalanced(&self, rebalance: Rebalance, health: &mut GroupHealth) -> anyhow::Result<()> {
        (self.on_rebalance)(&rebalance);
        match rebalance {
            Rebalance::Assigned(partitions) => {
                let indices: Vec<u32> = partitions.iter().map(|owned| owned.partition().index).collect();
                tracing::info!(partitions = ?indices, "assigned");
                health.joined();
                partitions.into_iter().for_each(&self.begin);
            }
            Rebalance::Revoked(revocation, partitions) => {
                let partitions: Vec<u32> = partitions.iter().map(|partition| partition.index).collect();
                tracing::info!(?partitions, why = revocation.label(), "asked back");
                if revocation == Revocation::Lost {
                    health.expelled();
                }
            }
            Rebalance::Foreign(why) => bail!("cannot use kafka: {why}"),
        }
        Ok(())
    }
}

impl Task for Membership {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut health = GroupHealth::new(&self.readiness);
        loop {
            let next = tokio::select! {
                biased;
                () = stop.requested() => break,
                next = self.intake.next() => next,
                () = health.refusal_passed() => {
                    health.joined();
                    continue;
                }
            };
            match next {
                Ok(rebalance) => self.rebalanced(rebalance, &mut health)?,
                Err(fault) => {
                    (self.on_fault)(&fault);
                    health.failed(&fault)?;
                }
            }
        }
        if stop.until_last_call(self.intake.leave()).await.is_err() {
            tracing::warn!("the group was not left in time: it expels this member by itself");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use async_trait::async_trait;
    use tally_core::ports::Outcome;
    use tally_service::{Condition, Host, Stage};

    use super::*;

    fn refused() -> Fault {
        Fault::Fatal("login refused".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_from_the_start_ends_the_process_and_names_itself() {
        let mut health = GroupHealth::new(&Readiness::new());
        health.failed(&Fault::Transient("no broker".to_owned())).unwrap();
        assert!(health.failed(&refused()).unwrap_err().to_string().contains("login refused"));
    }

    /// A Kafka that assigns nothing, refuses the login once, and then is silent.
    struct Refusing(VecDeque<Outcome<Rebalance>>);

    #[async_trait]
    impl Intake for Refusing {
        async fn next(&mut self) -> Outcome<Rebalance> {
            match self.0.pop_front() {
                Some(next) => next,
                None => std::future::pending().await,
            }
        }

        async fn leave(self: Box<Self>) {}
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_outlives_a_refusal_that_passes_and_is_ready_again() {
        let host = Host::new("test");
        let intake = Refusing([Ok(Rebalance::Assigned(Vec::new())), Err(refused())].into());
        let (readiness, began) = (host.readiness().clone(), Instant::now());
        host.spawn(Stage::Intake, "member", Membership::new(Box::new(intake), &readiness, |_| {}));
        tokio::time::sleep(QUIET / 2).await;
        assert!(matches!(&readiness.report().conditions[CONDITION], Condition::NotReady(why) if why.contains("login")));
        readiness.until_ready().await;
        assert_eq!(began.elapsed(), QUIET);
    }

    #[test]
    fn a_member_that_its_group_gave_up_is_not_ready_until_it_joins_again() {
        let readiness = Readiness::new();
        let mut health = GroupHealth::new(&readiness);
        health.joined();
        health.expelled();
        assert!(!readiness.report().ready);
        health.joined();
        assert!(readiness.report().ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_lasts_ends_the_process_and_a_record_that_cannot_be_read_does_not() {
        let mut health = GroupHealth::new(&Readiness::new());
        health.joined();
        let unreadable = Fault::Poison("bad compression".to_owned());
        for _ in 0..=10 {
            health.failed(&unreadable).unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        health.joined();
        for _ in 0..10 {
            health.failed(&refused()).unwrap();
            assert!(tokio::time::timeout(Duration::from_secs(30), health.refusal_passed()).await.is_err());
        }
        assert!(health.failed(&refused()).is_err());
    }
}
