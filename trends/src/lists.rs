//! The list of the posts or hashtags that gained most in one partition of the log, and the merge of all partitions'
//! lists of one second into the list that the API answers.

use tally_core::ids::PostId;

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

/// Merges the lists of all partitions into their first `k` subjects that are not blocked, and tells whether the result
/// is as long as it should be. A subject is in one partition, so the first `k` of all are among the first `k` of each.
/// A partition may have other subjects behind the last one that it lists, so the result ends where they could come.
///
/// Returns `None` if there is no list, if lists are of different moments, since a change between those may be in both
/// or in neither, or if a list that is not complete has fewer than `k` subjects.
pub fn merge(lists: &[List], k: usize, is_blocked: impl Fn(&PostId) -> bool) -> Option<(List, bool)> {
    let first = lists.first()?;
    let of_one_moment = |list: &List| (list.moment, list.from) == (first.moment, first.from);
    if !lists.iter().all(|list| of_one_moment(list) && (list.complete || list.items.len() >= k)) {
        return None;
    }
    let sure = lists.iter().filter(|list| !list.complete).filter_map(|list| list.items.last()).min();
    let listed = lists.iter().flat_map(|list| &list.items).filter(|item| sure.is_none_or(|sure| *item <= sure));
    let mut items: Vec<&Ranked> = listed.filter(|item| !is_blocked(&item.subject)).collect();
    items.sort_unstable();
    let complete = items.len() <= k && sure.is_none();
    let is_enough = items.len() >= k || complete;
    let items = items.into_iter().take(k).cloned().collect();
    Some((List { moment: first.moment, from: first.from, items, complete }, is_enough))
}
