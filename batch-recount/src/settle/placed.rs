//! Rows that do not stand where they belong: they count where they stand, and are reported.

use tally_adapters::dynamodb::ScannedRow;
use tally_core::ids::{ReservedKey, RowKey, Shard, ShardCount};

use super::Recount;

impl Recount {
    /// Reports the rows of no member and those that stand elsewhere. Nothing of a tombstone counts.
    pub(super) fn check_places(&self, rows: &[ScannedRow]) {
        for rows in rows.chunk_by(|one, next| one.pk == next.pk) {
            let key: Option<RowKey> = rows[0].pk.parse().ok();
            let is_placed = |row: &ScannedRow| {
                row.weight().is_some() && key.as_ref().is_some_and(|key| key.shard == shard_of(&row.sort, self.shards))
            };
            for row in rows.iter().filter(|row| row.gone.is_none() && !is_placed(row)) {
                self.findings.misplaced(|| format!("{:?} in {:?}", row.sort, row.pk));
            }
        }
    }
}

/// The shard that a row of this sort key belongs in.
fn shard_of(sort: &str, shards: ShardCount) -> Shard {
    match ReservedKey::read(sort) {
        Some(ReservedKey::Cell { partition, .. }) => shards.shard_of_cell(partition),
        _ => shards.shard_of(sort),
    }
}
