//! Open losses of stream, and the request for an audit: what only an audit puts an end to.

use tally_core::audit::OpenAtStart;
use tally_core::ids::RowKey;
use tally_core::ports::Gap;
use tally_core::time::UnixMillis;

use crate::findings::Findings;
use crate::store::Store;

/// An audit that has left row keys unsettled, all of which are queued.
pub(crate) struct Remainder {
    /// The gaps and the request that were open when the audit began.
    pub(crate) open: OpenAtStart,
    pub(crate) keys: Vec<RowKey>,
}

impl Remainder {
    /// Whether every row key left has been settled since: then none of them is queued any more.
    pub(crate) async fn is_settled(&self, store: &Store) -> anyhow::Result<bool> {
        let mut after = None;
        loop {
            let page = store.page("read the queue", || store.ports.recounts.queued(after.as_ref())).await?;
            if page.items.iter().any(|queued| self.keys.contains(&queued.key)) {
                return Ok(false);
            }
            after = page.next;
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    /// Closes what the audit found open: all it has left is settled.
    pub(crate) async fn close(&self, store: &Store, findings: &Findings) -> anyhow::Result<()> {
        let standing = standing(store).await?;
        for gap in self.open.closable(&standing, 0) {
            close(store, gap, findings).await?;
        }
        match self.open.asked {
            Some(asked) => take_off_queue(store, asked).await,
            None => Ok(()),
        }
    }
}

/// What there is to be closed by an audit that begins now.
pub(crate) async fn open_now(store: &Store) -> anyhow::Result<OpenAtStart> {
    let (gaps, asked) = all(store).await?;
    Ok(OpenAtStart::new(store.now(), &gaps, asked))
}

/// Whether anything is open now that an audit which found `known` open, once it is settled, would not close.
pub(crate) async fn is_outdated(store: &Store, known: &OpenAtStart) -> anyhow::Result<bool> {
    let (gaps, asked) = all(store).await?;
    Ok(known.is_outdated(&gaps, asked))
}

/// The gaps that stand open.
pub(crate) async fn standing(store: &Store) -> anyhow::Result<Vec<Gap>> {
    store.persist("read gaps", || store.ports.checkpoints.gaps()).await
}

/// Closes `gap`, if it is still the one opened then. Safe to repeat.
pub(crate) async fn close(store: &Store, gap: &Gap, findings: &Findings) -> anyhow::Result<()> {
    store.persist("close a gap", || store.ports.checkpoints.close_gap(gap)).await?;
    tracing::info!(gap = gap.id.0, "gap closed: every row key was proved or repaired");
    findings.gap_closed();
    Ok(())
}

/// The audit asked for at `asked` is done. Safe to repeat.
pub(crate) async fn take_off_queue(store: &Store, asked: UnixMillis) -> anyhow::Result<()> {
    store.persist("take the audit off the queue", || store.ports.recounts.audit_done(asked)).await
}

async fn all(store: &Store) -> anyhow::Result<(Vec<Gap>, Option<UnixMillis>)> {
    let gaps = standing(store).await?;
    let asked = store.persist("read the queued audit", || store.ports.recounts.audit_queued()).await?;
    store.read_items(2);
    Ok((gaps, asked))
}
