//! All rows, weighed by row key: what each counter has to be.

use futures_util::stream::TryStreamExt as _;
use tally_adapters::dynamodb::ScannedRow;
use tally_core::ids::{MemberKey, RowKey};

use crate::desk::Desk;

/// A row key whose rows were weighed.
#[derive(Clone, Debug)]
pub(crate) struct Weighed {
    pub(crate) key: RowKey,
    pub(crate) weight: i128,
    /// What a row of it weighs cannot be read.
    pub(crate) doubt: bool,
}

/// Weighs the rows of each row key, which follow each other, and hands on the row keys that are complete, some at once; how many
/// rows there are.
pub(crate) async fn by_key(
    desk: &Desk,
    mut found: impl AsyncFnMut(Vec<Weighed>) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let (mut count, mut open, mut pages) = (0, None::<Weighed>, desk.every_row());
    while let Some(rows) = pages.try_next().await? {
        let mut whole = Vec::new();
        for row in rows {
            // Items that are no rows count nothing, as in the stream.
            let Some(key) = key_of(&row) else { continue };
            if open.as_ref().is_none_or(|open| open.key != key) {
                whole.extend(open.replace(Weighed { key, weight: 0, doubt: false }));
            }
            let Some(open) = &mut open else { continue };
            // A tombstone weighs nothing.
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
