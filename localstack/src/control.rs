//! What people may change of a load under way.

use tokio::sync::watch;

/// The load's switch. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Control(std::sync::Arc<watch::Sender<bool>>);

impl Default for Control {
    fn default() -> Self {
        Self(std::sync::Arc::new(watch::Sender::new(false)))
    }
}

impl Control {
    /// Pauses the load, or lets it go on.
    pub(crate) fn pause(&self, paused: bool) {
        self.0.send_replace(paused);
    }

    /// Whether it is paused.
    pub(crate) fn is_paused(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes once it is not paused.
    pub(crate) async fn going(&self) {
        // The sender is borrowed by this very call, so the channel is open.
        let _ = self.0.subscribe().wait_for(|paused| !paused).await;
    }
}
