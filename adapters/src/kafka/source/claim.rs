//! A deployment's claim to its group: it is asked whether another deployment has it, before it is joined and again a while
//! after each assignment. Two that join at once find nothing at first; by then each has signed what it reads.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::StreamConsumer;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::context::Context;
use super::super::mark::Mark;
use super::until;

/// How long after an assignment the group is asked again. The first offsets are signed as reading begins.
const AGAIN: Duration = Duration::from_secs(15);

/// A deployment, the group that it reads as, and what is asked of it.
pub(super) struct Claim {
    mark: Arc<Mark>,
    again: Option<Instant>,
    asking: Option<JoinHandle<Outcome<()>>>,
}

impl Claim {
    /// Nothing is asked yet.
    pub(super) fn new(mark: Mark) -> Self {
        Self { mark: Arc::new(mark), again: None, asking: None }
    }

    /// What tells the deployment from any other.
    pub(super) fn deployment(&self) -> &Arc<str> {
        &self.mark.deployment
    }

    /// Partitions were assigned.
    pub(super) fn assigned(&mut self) {
        self.again = Some(Instant::now() + AGAIN);
    }

    /// Refuses a group that has read the topic for another deployment. It is asked once for several calls: cancel safe.
    pub(super) async fn ask(&mut self, consumer: &Arc<StreamConsumer<Context>>) -> Outcome<()> {
        let asking = self.asking.get_or_insert_with(|| {
            let (mark, consumer) = (Arc::clone(&self.mark), Arc::clone(consumer));
            tokio::task::spawn_blocking(move || mark.check(&consumer))
        });
        let answer = asking.await;
        self.asking = None;
        answer.map_err(|error| Fault::Transient(format!("asking the group: {error}")))?
    }

    /// Why the group has to be left, once that is known; a broker that does not answer is asked again later. Cancel safe.
    pub(super) async fn lost(&mut self, consumer: &Arc<StreamConsumer<Context>>) -> String {
        loop {
            until(self.again).await;
            match self.ask(consumer).await {
                Ok(()) => self.again = None,
                Err(Fault::Fatal(why)) => {
                    self.again = None;
                    return why;
                }
                Err(_) => self.assigned(),
            }
        }
    }
}
