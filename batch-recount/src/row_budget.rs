//! How many rows the windows and looks of one process hold at once, so that row keys of any size are recounted in bounded
//! memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Rows that may be held, by all windows and looks together.
#[derive(Debug)]
pub(crate) struct RowBudget {
    free: Arc<Semaphore>,
    all: u32,
}

/// The rows that one window or look may hold; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HeldRows {
    permit: OwnedSemaphorePermit,
    free: Arc<Semaphore>,
    all: u32,
}

impl RowBudget {
    /// A budget of `rows` held at once.
    pub(crate) fn of(rows: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(rows)), all: u32::try_from(rows).unwrap_or(u32::MAX) }
    }

    /// Waits for `rows`. A window that needs more than there are in all gets all of them.
    pub(crate) async fn take(&self, rows: u64) -> HeldRows {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX).min(self.all);
        let permit = Arc::clone(&self.free).acquire_many_owned(rows).await.expect("the semaphore is never closed");
        HeldRows { permit, free: Arc::clone(&self.free), all: self.all }
    }
}

impl HeldRows {
    /// Nothing yet.
    pub(crate) fn none_of(budget: &RowBudget) -> Self {
        let free = Arc::clone(&budget.free);
        let permit = Arc::clone(&free).try_acquire_many_owned(0).expect("no row is always free");
        Self { permit, free, all: budget.all }
    }

    /// Whether `rows` may be held, by this window's own or with what is free. Never waits: two windows that each hold
    /// some would deadlock.
    pub(crate) fn grow(&mut self, rows: u64) -> bool {
        let held = u32::try_from(self.permit.num_permits()).unwrap_or(u32::MAX);
        let wanted = u32::try_from(rows).unwrap_or(u32::MAX).min(self.all);
        let Some(more) = wanted.checked_sub(held).filter(|more| *more > 0) else { return true };
        let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(more) else { return false };
        self.permit.merge(more);
        true
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn windows_share_the_budget_and_one_that_outgrows_it_is_told_instead_of_waiting() {
        let budget = RowBudget::of(10);
        let (mut one, mut two) = (budget.take(6).await, budget.take(2).await);
        assert!(two.grow(4) && two.grow(1));
        assert!(!one.grow(7), "the other window holds the rest");
        assert!(budget.take(1).now_or_never().is_none());
        drop(two);
        assert!(one.grow(10));
        drop(one);
        let mut larger = budget.take(1_000_000).await;
        assert!(larger.grow(u64::MAX), "a row key larger than the budget has it alone");
    }
}
