//! Updates that want the total somewhere, and what is recorded with those that reach a threshold.

use tally_core::counter::Update;
use tally_core::ids::{CounterId, MemberKey};
use tally_core::milestone::{Bound, Events, Guard, Milestone, Winner};
use tally_core::ports::{Applied, Counts, Recorded};
use tally_core::time::UnixMillis;

use super::{taken, touch, update};
use crate::engine::Env;
use crate::likes::post;

pub(super) async fn contract(env: &Env) {
    a_total_at_its_bound_refuses(&*env.counts).await;
    a_counter_refuses_who_knows_less_of_the_ladder(&*env.counts).await;
    a_threshold_is_recorded_with_the_update_that_reaches_it_or_not_at_all(env).await;
    a_record_that_stands_is_named_and_nothing_is_done(env).await;
    milestones_are_read_as_they_were_written(env).await;
}

pub(crate) fn milestone(n: i64, by: Winner) -> Milestone {
    Milestone { n, by, at: UnixMillis(7_000), lag: 30, version: 2, exact: true, skipped: 0 }
}

pub(crate) fn member(name: &str) -> Winner {
    Winner::Member(MemberKey::new(name).unwrap())
}

pub(crate) fn guarded(update: Update, knows: u32, bound: Bound) -> Update {
    Update { guard: Some(Guard { knows, bound }), ..update }
}

fn one(first: u64) -> Update {
    update(1, first, first, vec![touch(0, 1)])
}

fn crossing(version: u64, reached: Vec<Milestone>) -> Bound {
    let through = reached.last().map_or(1, |milestone| milestone.n);
    Bound::Crossing { version, reached, through }
}

fn recorded(counter: &CounterId, milestone: &Milestone) -> Recorded {
    Recorded { milestone: milestone.clone(), digest: milestone.digest(counter) }
}

async fn a_total_at_its_bound_refuses(port: &dyn Counts) {
    let post = post("bound");
    let below = |first, bound| guarded(one(first), 1, Bound::Below(bound));
    for bound in [0, -3] {
        assert_eq!(port.apply(&post, &below(1, bound)).await, Ok(Applied::Refused(None)), "nothing is 0: {bound}");
    }
    let counter = taken(port, &post, &below(1, 1)).await;
    assert_eq!((counter.likes, counter.ladder, counter.recorded), (1, 1, None));
    assert_eq!(port.apply(&post, &below(2, 1)).await, Ok(Applied::Refused(Some(counter))));
    assert_eq!(taken(port, &post, &below(2, 2)).await.likes, 2);
}

async fn a_counter_refuses_who_knows_less_of_the_ladder(port: &dyn Counts) {
    let post = post("ladder");
    let knowing = |first, knows| guarded(one(first), knows, Bound::Free);
    assert_eq!(taken(port, &post, &knowing(1, 0)).await.ladder, 0);
    let counter = taken(port, &post, &knowing(2, 2)).await;
    assert_eq!(counter.ladder, 2);
    for knows in [0, 1] {
        assert_eq!(port.apply(&post, &knowing(3, knows)).await, Ok(Applied::Refused(Some(counter.clone()))));
    }
    assert_eq!(taken(port, &post, &knowing(3, 3)).await.ladder, 3);
    assert_eq!(taken(port, &post, &one(4)).await.ladder, 3, "what changes no total wants nothing of it");
}

async fn a_threshold_is_recorded_with_the_update_that_reaches_it_or_not_at_all(env: &Env) {
    let (port, post) = (&*env.counts, post("crossed"));
    let reached = [milestone(1, member("u-1")), milestone(2, Winner::Unwitnessed)];
    let first = guarded(one(1), 1, crossing(0, vec![reached[0].clone()]));
    let late = guarded(one(1), 1, crossing(3, vec![reached[1].clone()]));
    assert_eq!(port.apply(&post, &late).await, Ok(Applied::Refused(None)), "it was made for another version");
    assert_eq!(env.recounts.milestones(&post, 9).await, Ok(vec![]));
    let counter = taken(port, &post, &first).await;
    assert_eq!((counter.likes, counter.version, counter.recorded), (1, 1, Some(1)));
    assert_eq!(port.apply(&post, &first).await, Ok(Applied::Refused(Some(counter.clone()))), "a second copy");
    let other = guarded(update(2, 1, 1, vec![touch(1, 1)]), 1, crossing(0, vec![reached[1].clone()]));
    assert_eq!(port.apply(&post, &other).await, Ok(Applied::Refused(Some(counter))), "it is there by now");
    assert_eq!(env.recounts.milestones(&post, 9).await, Ok(vec![recorded(&post, &reached[0])]));
    let second = guarded(update(2, 1, 1, vec![touch(1, 1)]), 1, crossing(1, vec![reached[1].clone()]));
    assert_eq!(taken(port, &post, &second).await.recorded, Some(2));
    let all = [&reached[1], &reached[0]].map(|milestone| recorded(&post, milestone));
    assert_eq!(env.recounts.milestones(&post, 9).await, Ok(all.to_vec()), "the greatest first");
    assert_eq!(env.recounts.milestones(&post, 1).await, Ok(all[..1].to_vec()));
}

async fn a_record_that_stands_is_named_and_nothing_is_done(env: &Env) {
    let (port, post) = (&*env.counts, post("standing"));
    let (first, second) = (milestone(1, member("u-1")), milestone(2, member("u-2")));
    let counter = taken(port, &post, &guarded(one(1), 1, crossing(0, vec![first.clone()]))).await;
    let again = milestone(1, member("u-9"));
    let both = guarded(one(2), 1, crossing(1, vec![again, second.clone()]));
    assert_eq!(port.apply(&post, &both).await, Ok(Applied::Standing(vec![1])));
    assert_eq!(port.counter(&post).await, Ok(Some(counter)));
    assert_eq!(env.recounts.milestone(&post, 2).await, Ok(None));
    let left = Update { guard: both.guard.clone().map(|guard| guard.without(&[1])), ..both };
    assert_eq!(taken(port, &post, &left).await.recorded, Some(2));
    assert_eq!(env.recounts.milestone(&post, 1).await, Ok(Some(recorded(&post, &first))), "the first stays");
    assert_eq!(env.recounts.milestone(&post, 2).await, Ok(Some(recorded(&post, &second))));
}

async fn milestones_are_read_as_they_were_written(env: &Env) {
    let post = post("read");
    let events = Events { topic: "views".into(), partition: 3, generation: 1, from: 5, to: 9, nth: 2, gained: 4 };
    let most = Milestone { lag: u64::MAX, version: u64::MAX, exact: false, skipped: 7, ..milestone(1, member("u")) };
    let reached: Vec<Milestone> = vec![
        most,
        milestone(9, Winner::Events(events)),
        milestone(10, Winner::Unwitnessed),
        milestone(1_000_000_000_000_000_000, member("u\u{e9}#")),
    ];
    taken(&*env.counts, &post, &guarded(one(1), 1, crossing(0, reached.clone()))).await;
    let all: Vec<Recorded> = reached.iter().rev().map(|milestone| recorded(&post, milestone)).collect();
    assert_eq!(env.recounts.milestones(&post, 9).await, Ok(all), "in the order of numbers");
    assert_eq!(env.recounts.milestone(&post, 11).await, Ok(None));
}
