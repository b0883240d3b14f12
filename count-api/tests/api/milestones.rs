//! The milestones of counters: what is answered of each, what is next, and who gets none.

use std::sync::Arc;

use serde_json::json;
use tally_adapters::memory::Memory;
use tally_core::counter::{Feeder, Touch, Update};
use tally_core::ids::{CounterId, MemberKey, Ordinal, Shard};
use tally_core::milestone::{Bound, Events, Guard, Ladder, Milestone, Winner};
use tally_core::ports::{Applied, Counts as _, DeploymentConfig as _, LedgerEntry, Mended};
use tally_core::time::UnixMillis;
use tally_count_api::Config;

use crate::harness::{Api, BEGAN, With, counter_id, get};

pub(crate) fn milestone(n: i64, by: Winner, version: u64) -> Milestone {
    Milestone { n, by, at: BEGAN, lag: 310, version, exact: true, skipped: 0 }
}

pub(crate) fn member(name: &str) -> Winner {
    Winner::Member(MemberKey::new(name).unwrap())
}

/// Adds `delta` to the counter `id`, and records `reached` with it.
pub(crate) async fn cross(memory: &Memory, id: &CounterId, delta: i64, reached: Vec<Milestone>) {
    let counts = memory.counts();
    let version = counts.counter(id).await.unwrap().map_or(0, |counter| counter.version);
    let touch = Touch { shard: Shard::new(0).unwrap(), delta, feeder: Feeder::Usual, window: None, doubt: false };
    let through = reached.last().map_or(0, |milestone| milestone.n);
    let update = Update {
        shard: Ordinal(1),
        first: (version + 1).into(),
        last: (version + 1).into(),
        at: BEGAN,
        touched: vec![touch],
        ancestors: vec![],
        closed_through: None,
        prune: None,
        guard: Some(Guard { knows: 1, bound: Bound::Crossing { version, reached, through } }),
    };
    assert!(matches!(counts.apply(id, &update).await, Ok(Applied::Taken(_))));
}

pub(crate) async fn on_ladder(memory: &Memory, ladder: &str) {
    let raised = memory.checkpoints().raise_ladder(&Ladder::default(), &ladder.parse().unwrap()).await;
    assert_eq!(raised, Ok(true));
}

#[tokio::test]
async fn each_threshold_is_answered_with_who_was_first_and_the_next_one() {
    let api = Api::counting(Config::default(), With::default()).await;
    on_ladder(&api.memory, "10,20,100").await;
    let target = "/v1/posts/p/counters/likes/milestones";
    let nothing = json!({"post_id": "p", "counter": "likes", "milestones": [], "next": 10});
    assert_eq!(get(api.address, target).await.json(), nothing);
    let reached = vec![milestone(10, member("u-7"), 1), milestone(20, Winner::Unwitnessed, 1)];
    cross(&api.memory, &counter_id("p", "likes"), 25, reached).await;
    let answer = get(api.address, target).await;
    let both = json!({"at": BEGAN.0, "lag": 310, "version": 1, "exact": true});
    let with = |n: i64, state: &str| {
        let mut reached = both.clone();
        (reached["n"], reached["state"]) = (n.into(), state.into());
        reached
    };
    let mut located = with(10, "located");
    located["member"] = "u-7".into();
    let expected =
        json!({"post_id": "p", "counter": "likes", "milestones": [located, with(20, "unwitnessed")], "next": 100});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, expected));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn of_a_sum_it_is_answered_where_in_the_log_the_event_lies() {
    let api = Api::counting(Config::default(), With::default()).await;
    on_ladder(&api.memory, "10").await;
    for (post, to, offset) in [("p", 9, None), ("q", 6, Some(5))] {
        let events = Events { topic: "likes".into(), partition: 3, generation: 0, from: 5, to, nth: 2, gained: 4 };
        cross(&api.memory, &counter_id(post, "views"), 25, vec![milestone(10, Winner::Events(events), 1)]).await;
        let answer = get(api.address, &format!("/v1/posts/{post}/counters/views/milestones")).await.json();
        let event = &answer["milestones"][0]["event"];
        assert_eq!(
            (event["partition"].as_u64(), event["from"].as_u64(), event["to"].as_u64()),
            (Some(3), Some(5), Some(to))
        );
        assert_eq!((event["nth"].as_i64(), event["offset"].as_u64()), (Some(2), offset));
        assert_eq!(answer["milestones"][0]["state"], "in_log");
        assert!(answer.get("next").is_none(), "every threshold is recorded");
    }
}

#[tokio::test]
async fn what_was_corrected_afterwards_is_not_exact() {
    let api = Api::counting(Config::default(), With::default()).await;
    on_ladder(&api.memory, "10").await;
    let id = counter_id("p", "likes");
    cross(&api.memory, &id, 25, vec![milestone(10, member("u"), 1)]).await;
    let exact = async || {
        let answer = get(api.address, "/v1/posts/p/counters/likes/milestones").await.json();
        answer["milestones"][0]["exact"].as_bool().unwrap()
    };
    assert!(exact().await);
    let entry = |at, after| LedgerEntry {
        counter: id.clone(),
        shard: None,
        at,
        run: 1.into(),
        by: "test".to_owned(),
        before: 25,
        after,
        why: "total".to_owned(),
    };
    let mend = async |at: UnixMillis, version, after| {
        let mended = api.memory.counts().mend_total(&id, version, after, &entry(at, after)).await;
        assert_eq!(mended, Ok(Mended::Mended));
    };
    mend(BEGAN.minus(std::time::Duration::from_secs(9)), 1, 24).await;
    assert!(exact().await, "it came before");
    mend(BEGAN.plus(std::time::Duration::from_secs(8)), 2, 25).await;
    assert!(exact().await, "it corrected nothing");
    mend(BEGAN.plus(std::time::Duration::from_secs(9)), 3, 24).await;
    assert!(!exact().await);
}

#[tokio::test]
async fn an_unknown_counter_has_none_nor_has_a_sum_that_is_taken_from() {
    let api = Arc::new(Api::counting(Config::default(), With::default()).await);
    for (target, status, problem) in [
        ("/v1/posts/p/counters/nothing/milestones", 404, "unknown-counter"),
        ("/v1/posts/p/counters/score/milestones", 422, "no-milestones"),
        ("/v1/hashtags/rust/counters/likes/milestones", 404, "unknown-counter"),
    ] {
        let answer = get(api.address, target).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (status, problem), "{target}");
    }
    assert_eq!(get(api.address, "/v1/hashtags/rust/counters/searches/milestones").await.status.as_u16(), 200);
}
