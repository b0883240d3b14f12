//! Compares what a run of the local stack has left: the rows with the load's ledger, the counters with the rows, and
//! the API's answers with the rows.

use std::collections::{BTreeMap, BTreeSet};

use tally_adapters::dynamodb::ScannedRow;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, CounterName, ReservedKey, RowKey, Shard, ShardCount};

use crate::counters::{Counted, Counters};
use crate::ledger::{Amount, Ledger};
use crate::names::{Member, Names};
use crate::verify::Differences;

#[derive(Debug, Default)]
pub(super) struct Rows {
    counters: BTreeMap<CounterId, CounterRows>,
    /// Rows that are not where they belong, or of another kind than their counter.
    pub(super) astray: Differences,
}

/// The rows of one counter.
#[derive(Debug, Default)]
pub(super) struct CounterRows {
    /// How many there are.
    pub(super) rows: u64,
    /// What those of each shard weigh.
    pub(super) shards: BTreeMap<Shard, i64>,
    /// The members that are the load's.
    pub(super) members: BTreeSet<Member>,
}

static NONE: CounterRows = CounterRows { rows: 0, shards: BTreeMap::new(), members: BTreeSet::new() };

impl CounterRows {
    /// What all of them weigh.
    pub(super) fn total(&self) -> i64 {
        self.shards.values().sum()
    }
}

impl Rows {
    /// Takes a row in. A tombstone is a member that was taken back: there is nothing to compare.
    pub(super) fn take(&mut self, row: &ScannedRow, names: &Names, shards: ShardCount) {
        let ScannedRow { pk, sort, .. } = row;
        if row.gone.is_some() {
            return;
        }
        let key: RowKey = match pk.parse() {
            Ok(key) => key,
            Err(error) => return self.astray.add(|| format!("row {pk:?}: {error}")),
        };
        let (kind, home) = match ReservedKey::read(sort) {
            Some(ReservedKey::Cell { partition, .. }) => (CounterKind::Sum, shards.shard_of_cell(partition)),
            Some(_) => return,
            None => (CounterKind::Set, shards.shard_of(sort)),
        };
        if key.shard != home {
            self.astray.add(|| format!("row of {sort:?} in {pk:?}: belongs in shard {home}"));
        }
        if key.counter.name.kind() != kind {
            self.astray.add(|| format!("row of {sort:?} in {pk:?}: sums have cells alone, and sets have none"));
        }
        let Some(weight) = row.weight() else {
            return self.astray.add(|| format!("row of {sort:?} in {pk:?}: weighs nothing that can be read"));
        };
        let counter = self.counters.entry(key.counter).or_default();
        counter.rows += 1;
        *counter.shards.entry(key.shard).or_default() += weight.get();
        counter.members.extend(names.member_of(sort));
    }

    /// The rows of one counter.
    pub(super) fn of(&self, id: &CounterId) -> &CounterRows {
        self.counters.get(id).unwrap_or(&NONE)
    }

    /// Every counter that has rows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&CounterId, &CounterRows)> {
        self.counters.iter()
    }
}

/// What was compared of all counters of one name.
#[derive(Default)]
pub(crate) struct Compared {
    /// Rows of a set, or cells of a sum.
    pub(crate) rows: u64,
    /// Counters.
    pub(crate) counts: u64,
    /// What the counters come to together.
    pub(crate) total: i64,
}

/// What there is to compare, by the counters' name.
pub(super) fn compared(rows: &Rows, counters: &BTreeMap<CounterId, Counter>) -> BTreeMap<CounterName, Compared> {
    let mut all = BTreeMap::<CounterName, Compared>::new();
    for (id, found) in rows.iter() {
        all.entry(id.name.clone()).or_default().rows += found.rows;
    }
    for (id, counter) in counters {
        let compared = all.entry(id.name.clone()).or_default();
        compared.counts += 1;
        compared.total += counter.likes;
    }
    all
}

/// Compares the rows of the load with the ledger, counter by counter: each member of each post and hashtag, what
/// was added to each post, and all of them together.
pub(super) fn rows_with_ledger(rows: &Rows, ledger: &Ledger, counters: &Counters) -> Differences {
    let mut differences = rows.astray.clone();
    for (counted, definition) in &counters.ours {
        let found = ledger.names.subjects(*counted).iter().map(|subject| {
            let id = CounterId { post: subject.clone(), name: definition.name.clone() };
            (rows.of(&id), id)
        });
        let found: Vec<_> = found.collect();
        if *counted == Counted::Views {
            amounts_with(ledger, &found, &mut differences);
        } else {
            members_with(ledger, *counted, &found, &mut differences);
        }
    }
    differences
}

/// The rows of a counter, and its id, by the index of its post or hashtag.
type Found<'a> = [(&'a CounterRows, CounterId)];

fn members_with(ledger: &Ledger, counted: Counted, found: &Found<'_>, differences: &mut Differences) {
    let (mut said_in_all, mut rows_in_all) = (0, 0);
    for (index, (CounterRows { members, .. }, id)) in found.iter().enumerate() {
        let said: BTreeSet<Member> = ledger.members(counted, index).into_keys().collect();
        said_in_all += said.len();
        rows_in_all += members.len();
        for member in said.symmetric_difference(members) {
            let is = if said.contains(member) {
                "said last, and there is no row"
            } else {
                "taken back or never said, and there is a row"
            };
            differences.add(|| format!("{} of {id}: it was {is}", ledger.names.member(counted, *member)));
        }
    }
    if said_in_all != rows_in_all {
        let said = format!("{said_in_all} were said and not taken back, there are {rows_in_all} rows");
        differences.add(|| format!("{} in all: {said}", counted.name()));
    }
}

fn amounts_with(ledger: &Ledger, found: &Found<'_>, differences: &mut Differences) {
    let mut total = 0;
    for (index, (rows, id)) in found.iter().enumerate() {
        total += rows.total();
        amount(differences, ledger.views.of(index), rows.total(), || id.to_string());
    }
    amount(differences, ledger.views.total(), total, || format!("{} in all", Counted::Views.name()));
}

fn amount(differences: &mut Differences, said: Amount, found: i64, whose: impl FnOnce() -> String) {
    if !said.admits(found) {
        let Amount { known, open } = said;
        let open = if open == 0 { String::new() } else { format!(" and up to {open} more may count") };
        differences.add(|| format!("{}: {known} was acknowledged{open}, the cells hold {found}", whose()));
    }
}

/// Compares every counter with the rows, those of other users included: each shard, and the total.
pub(super) fn counters_with_rows(counters: &BTreeMap<CounterId, Counter>, rows: &Rows) -> Differences {
    let mut differences = Differences::default();
    let no_counter = Counter::default();
    for id in rows.iter().map(|(id, _)| id).chain(counters.keys()).collect::<BTreeSet<_>>() {
        let (found, counter) = (rows.of(id), counters.get(id).unwrap_or(&no_counter));
        for shard in found.shards.keys().chain(counter.parts.keys()).collect::<BTreeSet<_>>() {
            let there = found.shards.get(shard).copied().unwrap_or(0);
            let counted = counter.part(*shard);
            if there != counted {
                differences.add(|| format!("{id}#{shard}: the rows come to {there}, counted {counted}"));
            }
        }
        if counter.likes != found.total() {
            differences.add(|| format!("{id}: the rows come to {}, a total of {}", found.total(), counter.likes));
        }
    }
    differences
}

/// What the API answers of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) value: i64,
    pub(super) exact: bool,
    pub(super) fresh: bool,
}

/// Compares what the API answers with the rows of each Region. A sum over several has to be exact and fresh besides.
pub(super) fn served_with_rows(served: &BTreeMap<CounterId, Shown>, rows: &[&Rows]) -> Differences {
    let mut differences = Differences::default();
    for (id, Shown { value, exact, fresh }) in served {
        let there: i64 = rows.iter().map(|rows| rows.of(id).total()).sum();
        if *value != there {
            differences.add(|| format!("{id}: the rows come to {there}, the API answers {value}"));
        } else if rows.len() > 1 && !(*exact && *fresh) {
            differences.add(|| format!("{id}: the API answers {value}, exact: {exact}, fresh: {fresh}"));
        }
    }
    differences
}

#[cfg(test)]
mod tests;
