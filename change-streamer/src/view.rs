//! What this process knows of the stream right now, shared by its readers, appliers and publishers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tally_core::lineage::{Lineage, Picture};
use tally_core::time::Now;
use tokio::sync::watch;

/// The latest picture. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    picture: Arc<watch::Sender<Arc<Picture>>>,
    losses: Arc<AtomicU64>,
}

impl View {
    /// The latest picture.
    pub(crate) fn now(&self) -> Arc<Picture> {
        Arc::clone(&self.picture.borrow())
    }

    /// How many losses this process has noticed: taken before the gaps are read, it tells [`show`](Self::show) whether
    /// what was read may be older than the last of them.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    /// A loss was noticed: from now on nothing is called exact, until the gaps read say that it is.
    pub(crate) fn lost(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
        self.picture.send_modify(|picture| {
            *picture = Arc::new(Picture { open_gaps: true, ..Picture::clone(picture) });
        });
    }

    /// A new picture, whose reading began at `began`; `open_gaps` was read when this process had noticed `losses`.
    pub(crate) fn show(&self, began: Now, lineage: Lineage, open_gaps: bool, losses: u64) {
        self.picture.send_modify(|picture| {
            // While a shard has no checkpoint yet, what was known to be included before still is.
            let as_of = lineage.as_of().unwrap_or(picture.as_of);
            let open_gaps = open_gaps || self.losses() != losses;
            let (began, closed_through) = (Some(began), lineage.closed_through());
            *picture = Arc::new(Picture { began, closed_through, lineage, open_gaps, as_of });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_noticed_while_the_gaps_were_read_is_not_forgotten() {
        let view = View::default();
        let losses = view.losses();
        view.lost();
        view.show(Now::default(), Lineage::default(), false, losses);
        assert!(view.now().open_gaps);
        view.show(Now::default(), Lineage::default(), false, view.losses());
        assert!(!view.now().open_gaps);
    }
}
