//! Putting a window's markers: one link of the chain each.

use tally_core::ports::MarkerPut;
use tally_core::recount::{AfterPut, Marker, after_put};

use super::Window;

impl Window<'_> {
    /// Puts `marker` over `required`; whether it stands. What became of a put that was refused, or whose outcome nobody
    /// knows, is read off the marker that stands.
    pub(super) async fn put(&self, marker: Marker, required: Option<Marker>) -> anyhow::Result<bool> {
        let mut tries = 0;
        loop {
            self.tools.spent.wrote(1);
            match self.tools.ports.rows.put_marker(self.key, marker, required).await {
                Ok(MarkerPut::Put) => return Ok(true),
                Ok(MarkerPut::Unclear) => {}
                Err(fault) if fault.is_retryable() => {
                    self.tools.pause("put a marker", &fault, &mut tries).await?;
                }
                Err(fault) => return Err(anyhow::anyhow!(fault).context("cannot put a marker")),
            }
            match after_put(marker, self.marker().await?) {
                AfterPut::Stands => return Ok(true),
                AfterPut::Repeat => {}
                AfterPut::Lost => return Ok(false),
            }
        }
    }
}
