//! The lists of partitions, and how they are merged.

use std::collections::BTreeMap;

use tally_core::ids::PostId;
use thiserror::Error;

use crate::Ranked;

/// The first subjects of one partition, or of all, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The last second of the window.
    pub moment: u64,
    /// The last second before the window.
    pub from: u64,
    /// The subjects with the greatest gains, in order.
    pub items: Vec<Ranked>,
    /// Whether there are no other subjects.
    pub complete: bool,
}

/// Why lists cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotOne {
    /// There are none.
    #[error("there is no list")]
    None,
    /// They are of different moments, so a change between those may be in both or in neither.
    #[error("lists are of different moments")]
    Moments,
    /// One has fewer subjects than were asked for, and may lack some.
    #[error("a list is too short")]
    Short,
}

/// Merges the lists of all partitions into their first `k` subjects. A subject is in one partition, so the first `k` of all are
/// among the first `k` of each.
///
/// # Errors
/// The lists cannot be merged.
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

/// Merges the lists without the blocked subjects, and tells whether the result is as long as it should be. A partition may have
/// other subjects behind the last one that it lists, so the result ends where they could come.
///
/// # Errors
/// The lists cannot be merged.
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

/// The latest list of each partition. A list that arrives late or again, for example from a process that has lost the
/// partition, never replaces a later one.
#[derive(Clone, Debug, Default)]
pub struct Latest(BTreeMap<u32, List>);

impl Latest {
    /// Stores a list unless a later one is stored, and returns whether it did.
    pub fn take(&mut self, partition: u32, list: List) -> bool {
        let is_later = self.0.get(&partition).is_none_or(|known| list.moment > known.moment);
        if is_later {
            self.0.insert(partition, list);
        }
        is_later
    }

    /// The latest lists.
    pub fn lists(&self) -> impl Iterator<Item = &List> {
        self.0.values()
    }
}
