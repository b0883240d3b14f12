//! Tests what a list of what is trending may claim: what the merge of partitions' lists leaves out if subjects are
//! blocked, and when a list is exact.

use tally_core::ids::PostId;
use tally_core::time::UnixMillis;
use tally_trends::{Claim, Evidence, List, Ranked, Reason, certify, merge};

#[test]
fn blocked_subjects_leave_a_list_that_is_as_long_as_is_certain() {
    let list = |items: &[(&str, i64)], complete| {
        let ranked = |(id, count): &(&str, i64)| Ranked::new(PostId::new(id).unwrap(), *count);
        List { moment: 5, from: 0, items: items.iter().map(ranked).collect(), complete }
    };
    let lists = [list(&[("a", 9), ("b", 5), ("c", 3)], false), list(&[("d", 8), ("e", 2), ("f", 1)], true)];
    let but = |blocked: &[&str], k| {
        let (list, is_enough) = merge(&lists, k, |id| blocked.contains(&id.as_str())).unwrap();
        (list.items.iter().map(|item| item.subject.to_string()).collect::<String>(), is_enough)
    };
    assert_eq!(but(&[], 3), ("adb".to_owned(), true));
    assert_eq!(but(&["d"], 3), ("abc".to_owned(), true));
    // After c, which has 3, the first partition may have another subject before e.
    assert_eq!(but(&["a"], 3), ("dbc".to_owned(), true));
    assert_eq!(but(&["a", "b"], 3), ("dc".to_owned(), false));
    let whole = [lists[1].clone()];
    let (list, is_enough) = merge(&whole, 3, |id| id.as_str() == "d").unwrap();
    assert_eq!((list.items.len(), list.complete, is_enough), (2, true, true), "there are no more");
    assert_eq!(merge(&lists[..1], 4, |_| false), None, "a list that is too short may lack some");
    assert_eq!(merge(&[], 1, |_| false), None);
    let behind = List { moment: 6, ..lists[0].clone() };
    assert_eq!(merge(&[behind, lists[1].clone()], 1, |_| false), None, "they are of two moments");
}

#[test]
fn a_list_is_exact_if_nothing_in_its_window_is_in_doubt() {
    let sound = Evidence { from: 100, since: Some(UnixMillis(0)), loss: None, unreadable: None, late: None, shed: 0 };
    let unknown = |evidence: Evidence, reason| assert_eq!(certify(&evidence), Claim::Unknown(reason));
    assert_eq!(certify(&sound), Claim::Exact);
    assert_eq!(certify(&Evidence { shed: 3, ..sound }), Claim::Bound(3));
    // The clocks of the log and the table may differ by a minute.
    let at = |second: u64| Some(UnixMillis(second * 1000));
    unknown(Evidence { loss: at(41), shed: 3, ..sound }, Reason::Loss);
    assert_eq!(certify(&Evidence { loss: at(40), ..sound }), Claim::Exact, "it lies before the window");
    unknown(Evidence { unreadable: Some(101), ..sound }, Reason::Loss);
    assert_eq!(certify(&Evidence { unreadable: Some(100), ..sound }), Claim::Exact);
    unknown(Evidence { since: None, ..sound }, Reason::Young);
    unknown(Evidence { since: at(41), ..sound }, Reason::Young);
    assert_eq!(certify(&Evidence { since: at(40), ..sound }), Claim::Exact);
    assert_eq!(certify(&Evidence { from: 1, ..sound }), Claim::Exact, "from the first second on");
    unknown(Evidence { late: Some(101), ..sound }, Reason::Clock);
    assert_eq!(certify(&Evidence { late: Some(100), ..sound }), Claim::Exact, "it has left the window");
}
