//! Lists of partitions, and one made of them.

use std::collections::BTreeMap;

use tally_core::ids::PostId;
use thiserror::Error;

use crate::Ranked;

/// The first ones of one partition, or of all, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The last second that it includes.
    pub moment: u64,
    /// The last second before it.
    pub from: u64,
    /// Those that gained most, in order.
    pub items: Vec<Ranked>,
    /// There are no others.
    pub complete: bool,
}

/// Why lists are not merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotOne {
    /// There is none.
    #[error("there is no list")]
    None,
    /// They are of different moments: what moved from one to another between them would be in both, or in neither.
    #[error("lists are of different moments")]
    Moments,
    /// One has fewer than are asked for, and may lack some.
    #[error("a list is too short")]
    Short,
}

/// The first `k` of all partitions, from the lists of each. A subject is in one partition, so the first `k` of all are among the
/// first `k` of each.
///
/// # Errors
/// The lists do not make one.
pub fn merge<'a>(lists: impl IntoIterator<Item = &'a List>, k: usize) -> Result<List, NotOne> {
    let lists: Vec<&List> = lists.into_iter().collect();
    let first = *lists.first().ok_or(NotOne::None)?;
    if lists.iter().any(|list| (list.moment, list.from) != (first.moment, first.from)) {
        return Err(NotOne::Moments);
    }
    if lists.iter().any(|list| !list.complete && list.items.len() < k) {
        return Err(NotOne::Short);
    }
    let mut items: Vec<Ranked> = lists.iter().flat_map(|list| &list.items).cloned().collect();
    items.sort_unstable();
    let complete = items.len() <= k && lists.iter().all(|list| list.complete);
    items.truncate(k);
    Ok(List { moment: first.moment, from: first.from, items, complete })
}

/// The first `k` of all partitions but for those that are blocked, and whether these are as many as there are: a partition may have
/// others behind the last one that it lists, so nothing behind that is sure.
///
/// # Errors
/// The lists do not make one.
pub fn merge_but<'a>(
    lists: impl IntoIterator<Item = &'a List>,
    k: usize,
    is_blocked: impl Fn(&PostId) -> bool,
) -> Result<(List, bool), NotOne> {
    let lists: Vec<&List> = lists.into_iter().collect();
    let whole = merge(lists.iter().copied(), k)?;
    if !lists.iter().flat_map(|list| &list.items).any(|item| is_blocked(&item.subject)) {
        return Ok((whole, true));
    }
    let sure = lists.iter().filter(|list| !list.complete).filter_map(|list| list.items.last()).min();
    let left = lists.iter().flat_map(|list| &list.items).filter(|item| !is_blocked(&item.subject));
    let mut items: Vec<Ranked> = left.filter(|item| sure.is_none_or(|sure| *item <= sure)).cloned().collect();
    items.sort_unstable();
    let complete = items.len() <= k && sure.is_none();
    let is_enough = items.len() >= k || complete;
    items.truncate(k);
    Ok((List { items, complete, ..whole }, is_enough))
}

/// The latest list of each partition. One that arrives late, from a process that has lost the partition or again, never takes
/// the place of a later one.
#[derive(Clone, Debug, Default)]
pub struct Latest(BTreeMap<u32, List>);

impl Latest {
    /// Takes a list, unless a later one is there; whether it did.
    pub fn take(&mut self, partition: u32, list: List) -> bool {
        let is_later = self.0.get(&partition).is_none_or(|known| list.moment > known.moment);
        if is_later {
            self.0.insert(partition, list);
        }
        is_later
    }

    /// The lists.
    pub fn lists(&self) -> impl Iterator<Item = &List> {
        self.0.values()
    }
}
