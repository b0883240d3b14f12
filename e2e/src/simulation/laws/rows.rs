//! Rows against the fold of the events before the fences: every member, and every cell.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use tally_core::homes::Homes;
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey, ShardCount, UserId};
use tally_core::ports::ScannedRow;
use tally_core::weight::Weight;

use super::super::events::TOPIC;
use super::super::fold::Fold;

/// Where a row stands: its row key and its sort key.
pub(crate) type Place = (String, String);

/// A member has one row in its set at most, under one of its homes, and a partition one cell in a sum, in its own shard; the rows
/// are the fold. A tombstone is no member. What is in `foreign` no process wrote.
pub(crate) fn rows_fold(
    rows: &[ScannedRow],
    fold: &Fold,
    foreign: &BTreeSet<Place>,
    homes: &BTreeMap<CounterId, Homes>,
    shards: ShardCount,
) -> anyhow::Result<()> {
    let (mut members, mut cells) = (BTreeSet::new(), BTreeMap::new());
    for row in rows {
        if !foreign.is_empty() && foreign.contains(&(row.pk.clone(), row.sort.clone())) {
            continue;
        }
        let RowKey { counter, shard } = row.pk.parse()?;
        let weight = row.weight().with_context(|| format!("{row:?} is not readable"))?;
        if row.gone.is_some() {
            let is_member = counter.name.kind() == CounterKind::Set && ReservedKey::read(&row.sort).is_none();
            ensure!(is_member, "only a member of a set leaves a tombstone: {row:?}");
            continue;
        }
        match ReservedKey::read(&row.sort) {
            None => {
                ensure!(counter.name.kind() == CounterKind::Set, "a sum has the member {row:?}");
                ensure!(weight == Weight::ONE, "the row of a member weighs {weight}: {row:?}");
                let homes = homes.get(&counter).copied().unwrap_or_else(|| Homes::of(shards));
                ensure!(
                    homes.admit(&row.sort, shard),
                    "the row of {} stands in {}, outside {homes:?}",
                    row.sort,
                    row.pk
                );
                let member = (counter, UserId::new(&row.sort)?);
                let twice = members.replace(member);
                ensure!(twice.is_none(), "a member is in its set twice: {twice:?}");
            }
            Some(ReservedKey::Cell { topic: TOPIC, partition }) => {
                ensure!(counter.name.kind() == CounterKind::Sum, "a set has the cell {row:?}");
                ensure!(shard == shards.shard_of_cell(partition), "the cell of {partition} stands in {}", row.pk);
                let twice = cells.insert((counter, partition), weight.get());
                ensure!(twice.is_none(), "a partition has two cells: {row:?}");
            }
            Some(_) => bail!("no process writes such a row: {row:?}"),
        }
    }
    same(&members, &fold.members)?;
    for place in cells.keys().chain(fold.cells.keys()) {
        let (found, folded) = (cells.get(place), fold.cells.get(place));
        ensure!(found == folded, "the cell {place:?} has {found:?}, and what was said comes to {folded:?}");
    }
    Ok(())
}

fn same(found: &BTreeSet<(CounterId, UserId)>, folded: &BTreeSet<(CounterId, UserId)>) -> anyhow::Result<()> {
    let missing = folded.difference(found).next();
    ensure!(missing.is_none(), "a row is missing: {missing:?}");
    let spare = found.difference(folded).next();
    ensure!(spare.is_none(), "a row is there that should not be: {spare:?}");
    Ok(())
}

/// What the rows of each row key weigh.
pub(crate) fn weights(rows: &[ScannedRow]) -> BTreeMap<RowKey, i64> {
    let mut weighed = BTreeMap::new();
    for row in rows {
        if let (Ok(key), Some(weight)) = (row.pk.parse::<RowKey>(), row.weight()) {
            *weighed.entry(key).or_default() += weight.get();
        }
    }
    weighed
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{CounterName, PostId, RESERVED};
    use tally_core::weight::Stated;

    use super::*;

    fn counter(name: &str, kind: CounterKind) -> CounterId {
        CounterId { post: PostId::new("p").expect("an id"), name: CounterName::new(name, kind).expect("a name") }
    }

    fn row(pk: &str, sort: &str, stated: Stated) -> ScannedRow {
        ScannedRow { pk: pk.to_owned(), sort: sort.to_owned(), stated, gone: None }
    }

    fn cell(n: i64) -> ScannedRow {
        row("p#+views.1", &format!("{RESERVED}cell/{TOPIC}/3"), Stated::Amount(Weight::new(n).expect("an amount")))
    }

    #[test]
    fn a_member_or_a_cell_that_is_not_in_the_fold_or_is_another_there_breaks_the_law() {
        let shards = ShardCount::new(2).expect("a power of two");
        let user = UserId::new("u").expect("an id");
        let member = |name: &str| {
            let key = RowKey::of(&counter(name, CounterKind::Set), &user, shards);
            row(&key.to_string(), "u", Stated::Nothing)
        };
        let mut fold = Fold::default();
        fold.members.insert((counter("retweets", CounterKind::Set), user.clone()));
        fold.cells.insert((counter("views", CounterKind::Sum), 3), -7);
        let holds = |rows: &[ScannedRow]| rows_fold(rows, &fold, &BTreeSet::new(), &BTreeMap::new(), shards).is_ok();
        assert!(holds(&[member("retweets"), cell(-7)]));
        assert!(!holds(&[member("retweets"), cell(-6)]));
        assert!(!holds(&[member("retweets")]) && !holds(&[cell(-7)]));
        assert!(!holds(&[member("retweets"), member("replies"), cell(-7)]));
        let left = |of: ScannedRow| ScannedRow { stated: Stated::Amount(Weight::ABSENT), gone: Some(7), ..of };
        assert!(holds(&[member("retweets"), left(member("replies")), cell(-7)]), "a tombstone is no member");
        assert!(!holds(&[left(member("retweets")), cell(-7)]) && !holds(&[member("retweets"), left(cell(-7))]));
        let foreign = row("p#+views.0", "x", Stated::Unreadable);
        assert!(!holds(&[member("retweets"), cell(-7), foreign.clone()]));
        let known = BTreeSet::from([(foreign.pk.clone(), foreign.sort.clone())]);
        assert!(rows_fold(&[member("retweets"), cell(-7), foreign], &fold, &known, &BTreeMap::new(), shards).is_ok());
    }
}
