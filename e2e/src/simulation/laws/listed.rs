//! Lists of what is trending against what rows gained.

use std::collections::BTreeMap;

use anyhow::ensure;
use tally_core::ids::PostId;
use tally_trends::{Claim, Ranked, Top};

/// A list that says that it is exact has the first `k` of `gained`; of one that states a bound no count is off by more, and
/// nothing that it does not list beats the last one by more.
pub(crate) fn listed(top: &Top, gained: &BTreeMap<PostId, i64>, k: usize) -> anyhow::Result<()> {
    let items = &top.list.items;
    let worth = gained.iter().filter(|(_, sum)| **sum >= 1);
    let mut right: Vec<Ranked> = worth.map(|(subject, sum)| Ranked::new(subject.clone(), *sum)).collect();
    right.sort_unstable();
    match top.claim {
        Claim::Unknown(_) => {}
        Claim::Exact => {
            right.truncate(k);
            ensure!(*items == right, "{items:?} is listed, and rows gained {right:?}");
        }
        Claim::Bound(bound) => {
            for item in items {
                let sum = gained.get(&item.subject).copied().unwrap_or(0);
                ensure!(item.count().abs_diff(sum) <= bound, "{item:?} is listed, and its rows gained {sum}");
            }
            let last = items.get(k.saturating_sub(1)).map_or(0, Ranked::count);
            let bound = i64::try_from(bound).unwrap_or(i64::MAX);
            let unlisted = right.iter().find(|right| !items.iter().any(|item| item.subject == right.subject));
            let beats = unlisted.filter(|unlisted| unlisted.count().saturating_sub(last) > bound);
            ensure!(beats.is_none(), "{items:?} is listed, and {beats:?} is not");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tally_trends::List;

    use super::*;

    #[test]
    fn a_list_is_exact_or_within_its_bound() {
        let post = |name: &str| PostId::new(name).expect("an id");
        let gained = [("a", 5), ("b", 3), ("c", 3), ("d", -1)].map(|(name, sum)| (post(name), sum)).into();
        let holds = |items: &[(&str, i64)], claim| {
            let items = items.iter().map(|(name, count)| Ranked::new(post(name), *count)).collect();
            let list = List { moment: 9, from: 0, items, complete: false };
            listed(&Top { list, claim }, &gained, 2).is_ok()
        };
        assert!(holds(&[("a", 5), ("b", 3)], Claim::Exact));
        assert!(!holds(&[("a", 5), ("c", 3)], Claim::Exact) && !holds(&[("a", 5)], Claim::Exact));
        assert!(holds(&[("a", 4), ("c", 2)], Claim::Bound(1)) && !holds(&[("a", 3), ("c", 2)], Claim::Bound(1)));
        assert!(holds(&[("a", 5), ("d", 1)], Claim::Bound(2)) && !holds(&[("a", 5), ("d", 0)], Claim::Bound(2)));
        assert!(!holds(&[("a", 5)], Claim::Bound(2)) && holds(&[("a", 5)], Claim::Bound(3)));
    }
}
