//! Tests the HTTP routes of milestones, the records of who first brought a counter to a threshold: what is answered of
//! each, which threshold is next, and which counters have none.

use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::counters::{Counters, Crossed, Update};
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::{AuditRun, CounterId, MemberKey, Shard};
use tally_core::milestone::{Events, Ladder, Milestone, Winner};
use tally_core::time::UnixMillis;
use tally_count_api::Config;

use crate::harness::{Api, BEGAN, Deployed, With, counter_id, eventually, get, standing};

pub(crate) fn milestone(n: i64, by: Winner, version: u64) -> Milestone {
    Milestone { n, by, at: BEGAN, lag: 310, version, exact: true, skipped: 0 }
}

pub(crate) fn member(name: &str) -> Winner {
    Winner::Member(MemberKey::new(name).unwrap())
}

/// The fold adds `delta` to the counter `id`, and records `reached` with it.
pub(crate) async fn cross(tables: &Deployed, id: &CounterId, delta: i64, reached: Vec<Milestone>) {
    let counters = Counters::new(tables.connection());
    let mut read = counters.read(std::slice::from_ref(id), Consistency::Strong).await.unwrap();
    let before = read.counters.remove(id).transpose().unwrap();
    let was = before.clone().unwrap_or_default();
    let first = Shard::new(0).unwrap();
    let after = Counter {
        likes: was.likes + delta,
        parts: [(first, was.part(first) + delta)].into(),
        version: Place::from_stored(was.version.stored() + 1),
        ..was
    };
    let update = Update { counter: id.clone(), before, after };
    assert_eq!(counters.cross(&update, &reached).await, Ok(Crossed::Stored));
}

pub(crate) async fn on_ladder(tables: &Deployed, ladder: &str) {
    let raised = tables.checkpoints().raise_ladder(&Ladder::default(), &ladder.parse().unwrap()).await;
    assert_eq!(raised, Ok(true));
}

/// The recount writes down that it corrects the total of a counter.
async fn correct(tables: &Deployed, id: &CounterId, at: UnixMillis, after: i64) {
    let item = json!({
        "pk": {"S": format!("ledger#{}", id.stored())}, "sk": {"S": format!("{:020}#1#total", at.0)},
        "at": {"N": at.to_string()}, "run": {"S": AuditRun::from(1).to_string()}, "by": {"S": "test"},
        "before": {"N": "25"}, "after": {"N": after.to_string()}, "why": {"S": "total"}
    });
    tables.store.call("PutItem", json!({"TableName": "recounts", "Item": item})).await;
}

#[tokio::test]
async fn each_threshold_is_answered_with_who_was_first_and_the_next_one() {
    let api = Api::start(Config::default(), With::default()).await;
    on_ladder(&api.tables, "10,20,100").await;
    let target = "/v1/posts/p/counters/likes/milestones";
    let nothing = json!({"post_id": "p", "counter": "likes", "milestones": [], "next": 10});
    assert_eq!(get(api.address, target).await.json(), nothing);
    let reached = vec![milestone(10, member("u-7"), 1), milestone(20, Winner::Unwitnessed, 1)];
    cross(&api.tables, &counter_id("p", "likes"), 25, reached).await;
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
    let api = Api::start(Config::default(), With::default()).await;
    on_ladder(&api.tables, "10").await;
    for (post, to, offset) in [("p", 9, None), ("q", 6, Some(5))] {
        let events = Events { topic: "likes".into(), partition: 3, generation: 0, from: 5, to, nth: 2, gained: 4 };
        cross(&api.tables, &counter_id(post, "views"), 25, vec![milestone(10, Winner::Events(events), 1)]).await;
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
async fn no_milestone_is_exact_while_a_loss_is_open_or_once_it_was_corrected() {
    let api = Api::start(Config::default(), With::default()).await;
    on_ladder(&api.tables, "10").await;
    let id = counter_id("p", "likes");
    cross(&api.tables, &id, 25, vec![milestone(10, member("u"), 1)]).await;
    let exact = async || {
        let answer = get(api.address, "/v1/posts/p/counters/likes/milestones").await.json();
        answer["milestones"][0]["exact"].as_bool().unwrap()
    };
    assert!(exact().await);
    api.tables.stand(&standing(2_000, BEGAN, Some(1_500), &[7])).await;
    eventually("the loss is seen", async || !exact().await).await;
    api.tables.stand(&standing(3_000, BEGAN, Some(1_500), &[])).await;
    eventually("its end is seen", exact).await;
    let seconds = Duration::from_secs;
    correct(&api.tables, &id, BEGAN.minus(seconds(61)), 24).await;
    assert!(exact().await, "it came before");
    correct(&api.tables, &id, BEGAN.plus(seconds(8)), 25).await;
    assert!(exact().await, "it corrected nothing");
    correct(&api.tables, &id, BEGAN.minus(seconds(59)), 24).await;
    assert!(!exact().await, "it may have come to the log behind what crossed the threshold");
}

#[tokio::test]
async fn an_unknown_counter_has_none_nor_has_a_sum_that_is_taken_from() {
    let api = Api::start(Config::default(), With::default()).await;
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
