//! How many rows the windows of one process hold at once, so that row keys of any size are recounted in bounded memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for rows, shared by all windows.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    all: u32,
}

/// A window's part of the room, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    permit: OwnedSemaphorePermit,
    free: Arc<Semaphore>,
    all: u32,
}

impl Room {
    /// Room for so many at once.
    pub(crate) fn of(rows: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(rows)), all: u32::try_from(rows).unwrap_or(u32::MAX) }
    }

    /// Waits for room for `rows`. Whoever needs more than there is has the whole of it.
    pub(crate) async fn take(&self, rows: u64) -> Part {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX).min(self.all);
        let permit = Arc::clone(&self.free).acquire_many_owned(rows).await.expect("nobody closes the semaphore");
        Part { permit, free: Arc::clone(&self.free), all: self.all }
    }
}

impl Part {
    /// Whether `rows` have room, in this part or in what is free. It never waits, for whoever holds some of it would.
    pub(crate) fn holds(&mut self, rows: u64) -> bool {
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
    async fn windows_share_the_room_and_one_that_outgrows_it_is_told_instead_of_waiting() {
        let room = Room::of(10);
        let (mut one, mut two) = (room.take(6).await, room.take(2).await);
        assert!(two.holds(4) && two.holds(1));
        assert!(!one.holds(7), "the others hold the rest");
        assert!(room.take(1).now_or_never().is_none());
        drop(two);
        assert!(one.holds(10));
        drop(one);
        let mut larger = room.take(1_000_000).await;
        assert!(larger.holds(u64::MAX), "a row key larger than the room has it alone");
    }
}
