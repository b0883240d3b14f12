//! Adds up the weights of all rows by row key (counter and shard), for `tally verify`. A row's *weight* is what it
//! counts for: 1 for a member of a set, the amount of a sum's cell. The sum is what the counter's part has to be.

use futures_util::stream::TryStreamExt as _;
use tally_adapters::dynamodb::ScannedRow;
use tally_core::ids::{MemberKey, RowKey};

use crate::desk::Desk;

/// A row key, with the sum of its rows' weights.
#[derive(Clone, Debug)]
pub(crate) struct Weighed {
    pub(crate) key: RowKey,
    pub(crate) weight: i128,
    /// Whether the weight of one of its rows cannot be read.
    pub(crate) doubt: bool,
}

/// Reads all rows, and hands complete row keys to `found`, some at once. Returns how many rows are no tombstones.
pub(crate) async fn by_key(
    desk: &Desk,
    mut found: impl AsyncFnMut(Vec<Weighed>) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let (mut count, mut open, mut pages) = (0, None::<Weighed>, desk.every_row());
    while let Some(rows) = pages.try_next().await? {
        let mut whole = Vec::new();
        for row in rows {
            // An item that is no row counts for nothing, as in the stream.
            let Some(key) = key_of(&row) else { continue };
            if open.as_ref().is_none_or(|open| open.key != key) {
                whole.extend(open.replace(Weighed { key, weight: 0, doubt: false }));
            }
            let Some(open) = &mut open else { continue };
            // A tombstone is not counted as a row.
            count += u64::from(row.gone.is_none());
            match row.weight() {
                Some(weight) => open.weight += i128::from(weight.get()),
                None => open.doubt = true,
            }
        }
        found(whole).await?;
    }
    found(open.into_iter().collect()).await?;
    Ok(count)
}

fn key_of(row: &ScannedRow) -> Option<RowKey> {
    let is_member = MemberKey::new(&row.sort).is_some();
    row.pk.parse().ok().filter(|_| is_member)
}
