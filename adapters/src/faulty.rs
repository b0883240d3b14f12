//! A wrapper that makes any port fail on demand: by script, call by call, or by seed.
//!
//! It is used like `Faulty::new(port, Plan::seeded(7, 20))`, and implements whatever ports the wrapped one does.

mod changes;
mod maps;
mod plan;
mod ports;
mod records;

use std::future::Future;

use tally_core::fault::Fault;
use tally_core::fence::{Commit, Refused};
use tally_core::ports::StreamFault;

pub use plan::{Failure, Plan};

/// A port whose calls fail as a plan says.
#[derive(Clone, Debug)]
pub struct Faulty<P> {
    port: P,
    plan: Plan,
}

impl<P> Faulty<P> {
    /// `port`, failing as `plan` says. Several wrappers may share one plan.
    pub fn new(port: P, plan: Plan) -> Self {
        Self { port, plan }
    }

    /// The plan, to be changed while calls go on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// One call of `operation`, with whatever the plan has in store for it.
    async fn call<T: Failed + Send>(&self, operation: &'static str, call: impl Future<Output = T> + Send) -> T {
        match self.plan.draw(operation) {
            None => call.await,
            Some(Failure::Late(by)) => {
                tokio::time::sleep(by).await;
                call.await
            }
            Some(failure @ Failure::Applied) => {
                let answer = call.await;
                if answer.is_failure() { answer } else { T::failed(operation, failure) }
            }
            Some(failure) => T::failed(operation, failure),
        }
    }
}

/// An answer that can say that the call failed.
trait Failed: Sized {
    /// What the caller sees of `failure`.
    fn failed(operation: &str, failure: Failure) -> Self;

    /// Whether it says that the call failed.
    fn is_failure(&self) -> bool;
}

fn fault(operation: &str, failure: Failure) -> Fault {
    match failure {
        Failure::Throttled => Fault::Throttled(format!("{operation}: injected")),
        Failure::Conflict => Fault::Transient(format!("{operation}: injected conflict")),
        Failure::Applied | Failure::Dropped | Failure::Late(_) => {
            Fault::Transient(format!("{operation}: injected, no answer"))
        }
    }
}

impl<T> Failed for Result<T, Fault> {
    fn failed(operation: &str, failure: Failure) -> Self {
        Err(fault(operation, failure))
    }

    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

impl<T> Failed for Result<T, StreamFault> {
    fn failed(operation: &str, failure: Failure) -> Self {
        Err(StreamFault::Fault(fault(operation, failure)))
    }

    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

impl Failed for Commit {
    fn failed(operation: &str, failure: Failure) -> Self {
        match failure {
            Failure::Conflict => Self::Cancelled(vec![Refused::Conflict]),
            Failure::Throttled => Self::Cancelled(vec![Refused::Throttled]),
            Failure::Applied | Failure::Dropped | Failure::Late(_) => {
                Self::Unknown(format!("{operation}: injected, no answer"))
            }
        }
    }

    fn is_failure(&self) -> bool {
        *self != Self::Done
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tally_core::fence::{Advance, Fence, Next, Offset, Partition, TopicId};
    use tally_core::ids::{RowKey, ShardCount};
    use tally_core::ports::{FencedRows, MarkerPut, Markers};
    use tally_core::time::UnixMillis;
    use tally_core::window::Marker;
    use tokio::time::Instant;

    use super::*;
    use crate::memory::{Likes, Memory};

    fn partition() -> Partition {
        Partition { topic: "t".into(), index: 0 }
    }

    fn fence(offset: u64) -> Fence {
        Fence::new(Offset(offset), 0, TopicId("t".into()))
    }

    fn likes(plan: &Plan) -> (Likes, Faulty<Likes>) {
        let likes = Memory::new(UnixMillis(0), 1).likes(ShardCount::DEFAULT);
        (likes.clone(), Faulty::new(likes, plan.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_caller_hears_and_what_happened_are_two_things() {
        let plan = Plan::default();
        let (likes, faulty) = likes(&plan);
        likes.create_fence(&partition(), &fence(0)).await.unwrap();
        let outcomes = [
            (Failure::Applied, Next::Reload, 1),
            (Failure::Dropped, Next::Reload, 0),
            (Failure::Conflict, Next::Again, 0),
            (Failure::Throttled, Next::Again, 0),
            (Failure::Late(Duration::from_secs(9)), Next::Go, 1),
        ];
        for (failure, next, moved) in outcomes {
            let before = likes.fence(&partition()).await.unwrap().unwrap();
            plan.fail_next("commit", failure);
            let advance = Advance { to: before.offset.next(), from: before.clone() };
            assert_eq!(faulty.commit(&partition(), &advance, &[]).await.next(), next, "{failure:?}");
            let after = likes.fence(&partition()).await.unwrap().unwrap();
            assert_eq!(after.offset.0 - before.offset.0, moved, "{failure:?}");
        }
        assert_eq!(plan.fired(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn lateness_is_tokio_time() {
        let plan = Plan::default();
        let (_, faulty) = likes(&plan);
        plan.fail_next("fence", Failure::Late(Duration::from_secs(60)));
        let began = Instant::now();
        faulty.fence(&partition()).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_marker_put_without_an_answer_is_unclear_and_no_fault() {
        let plan = Plan::default();
        let markers = Memory::new(UnixMillis(0), 1).markers();
        let faulty = Faulty::new(markers.clone(), plan.clone());
        let key: RowKey = "p#0".parse().unwrap();
        plan.fail_next("put_marker", Failure::Applied);
        let marker = Marker::low(1.into());
        assert_eq!(faulty.put_marker(&key, marker, None).await, Ok(MarkerPut::Unclear));
        assert_eq!(markers.marker(&key).await, Ok(Some(marker)));
    }
}
