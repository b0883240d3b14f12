//! The load's switch: a person may pause it and let it go on.

use tokio::sync::watch;

pub(crate) struct Control(watch::Sender<bool>);

impl Default for Control {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Control {
    pub(crate) fn pause(&self, paused: bool) {
        self.0.send_replace(paused);
    }

    pub(crate) fn is_paused(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes once the load is not paused.
    pub(crate) async fn going(&self) {
        // The sender is borrowed by this very call, so the channel is open.
        let _ = self.0.subscribe().wait_for(|paused| !paused).await;
    }
}
