//! Rows that do not stand where they belong: they count where they stand, and are reported.

use tally_core::homes::Homes;
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey, Shard, ShardCount};
use tally_core::ports::{CounterMaps as _, ScannedRow};

use super::Recount;

/// Checks the rows of one scan.
pub(super) struct Placed<'a> {
    of: &'a Recount,
    /// The homes of the set that was looked at last.
    homes: Option<(CounterId, Homes)>,
}

impl<'a> Placed<'a> {
    pub(super) fn of(of: &'a Recount) -> Self {
        Self { of, homes: None }
    }

    /// Reports the rows of no member and those that stand elsewhere. Nothing of a tombstone counts.
    pub(super) async fn check(&mut self, rows: &[ScannedRow]) -> anyhow::Result<()> {
        for rows in rows.chunk_by(|one, next| one.pk == next.pk) {
            let key: Option<RowKey> = rows[0].pk.parse().ok();
            for row in rows.iter().filter(|row| row.gone.is_none()) {
                let is_placed = match &key {
                    Some(key) if row.weight().is_some() => {
                        key.shard == self.home(&row.sort) || self.is_at_home(key, &row.sort).await?
                    }
                    _ => false,
                };
                if !is_placed {
                    self.of.findings.misplaced(|| format!("{:?} in {:?}", row.sort, row.pk));
                }
            }
        }
        Ok(())
    }

    /// The shard that a row of `sort` belongs in, unless its set has other homes.
    fn home(&self, sort: &str) -> Shard {
        match ReservedKey::read(sort) {
            Some(ReservedKey::Cell { partition, .. }) => self.of.shards.shard_of_cell(partition),
            _ => self.of.shards.shard_of(sort),
        }
    }

    /// Whether a row of `sort` under `key` stands under another home of its set. The set's map is read where some number of
    /// shards puts the row there.
    async fn is_at_home(&mut self, key: &RowKey, sort: &str) -> anyhow::Result<bool> {
        let is_member = key.counter.name.kind() == CounterKind::Set && ReservedKey::read(sort).is_none();
        if !is_member || !ShardCount::each().any(|shards| shards.shard_of(sort) == key.shard) {
            return Ok(false);
        }
        if let Some((_, homes)) = self.homes.as_ref().filter(|(counter, _)| *counter == key.counter) {
            return Ok(homes.admit(sort, key.shard));
        }
        let calls = &self.of.calls;
        let map = calls.persist("read a map", || self.of.ports.maps.map(&key.counter)).await?;
        calls.read_items(1);
        let homes = map.map_or_else(|| Homes::of(self.of.shards), |map| map.homes());
        self.homes = Some((key.counter.clone(), homes));
        Ok(homes.admit(sort, key.shard))
    }
}
