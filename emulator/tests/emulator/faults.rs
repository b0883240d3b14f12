//! Tests the faults that the emulator injects into whole requests and into single statements of a batch, and what is
//! stored after them.

use std::time::Duration;

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator, Fault, Lost, Rule};
use tokio::time::Instant;

use crate::partiql::{batch, codes, execute, insert, started as with_likes, update, version};
use crate::raw::{call, items, kind, send, with_rows};

const GHOST: Fault = Fault::Ghost { max_delay_ms: 300_000, hang_ms: 0 };

async fn started() -> Emulator {
    with_rows(Config::default(), &[("p", "S")]).await
}

/// Adds one to the item `a`.
async fn add(emulator: &Emulator) -> Result<Result<Value, Value>, Lost> {
    let request = json!({"TableName": "rows", "Key": {"p": {"S": "a"}}, "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}}});
    send(emulator, "UpdateItem", request).await
}

/// The value of the item `a`.
async fn count(emulator: &Emulator) -> u32 {
    items(emulator, "rows").await.first().map_or(0, |item| item["n"]["N"].as_str().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_connection_breaks_is_carried_out_before_later_or_never() {
    for (fault, then, later) in [(Fault::DropReply, 3, 3), (Fault::Outage, 0, 0), (GHOST, 0, 3)] {
        let emulator = started().await;
        emulator.set_faults(vec![Rule::new(fault).on("UpdateItem").table("rows").calls(1, 3)]);
        for _ in 0..3 {
            assert_eq!(add(&emulator).await, Err(Lost::Closed), "{fault:?}");
        }
        assert_eq!(count(&emulator).await, then, "{fault:?}");
        assert_eq!(
            (emulator.stats().ghosts_pending, emulator.stats().fired(fault.name())),
            ((later - then) as usize, 3)
        );
        add(&emulator).await.unwrap().unwrap();
        tokio::time::advance(Duration::from_secs(300)).await;
        assert_eq!(count(&emulator).await, later + 1, "{fault:?}");
        assert_eq!((emulator.stats().ghosts_pending, emulator.stats().ghosts_applied), (0, u64::from(later - then)));
    }
}

#[tokio::test(start_paused = true)]
async fn errors_change_nothing_except_that_an_internal_error_may() {
    let emulator = started().await;
    // Each rule counts the calls that it sees, including those that another rule affects.
    let faults = [
        (Fault::Throttle, "ProvisionedThroughputExceededException", 0),
        (Fault::Conflict, "TransactionConflictException", 0),
        (Fault::InternalError { applied: Some(true) }, "InternalServerError", 1),
        (Fault::InternalError { applied: Some(false) }, "InternalServerError", 1),
    ];
    let rules = (1..).zip(faults).map(|(nth, (fault, ..))| Rule::new(fault).on("UpdateItem").nth(nth));
    emulator.set_faults(rules.collect());
    for (_, code, after) in faults {
        assert_eq!(kind(&add(&emulator).await.unwrap().unwrap_err()), code);
        assert_eq!(count(&emulator).await, after, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_cancels_a_transaction_with_its_own_reason() {
    let emulator = started().await;
    for (fault, code) in [(Fault::Throttle, "ThrottlingError"), (Fault::Conflict, "TransactionConflict")] {
        emulator.set_faults(vec![Rule::new(fault).on("TransactWriteItems").nth(1)]);
        let put = |n| json!({"Put": {"TableName": "rows", "Item": {"p": {"S": format!("{code}{n}")}}}});
        let request = json!({"TransactItems": (0..5).map(put).collect::<Vec<_>>()});
        let refused = call(&emulator, "TransactWriteItems", request.clone()).await.unwrap_err();
        let mut codes = crate::raw::codes(&refused);
        codes.sort_unstable();
        assert_eq!(codes, ["None", "None", "None", "None", code]);
        call(&emulator, "TransactWriteItems", request).await.unwrap();
    }
    assert_eq!(emulator.stats().tables["rows"].items, 10);
}

#[tokio::test(start_paused = true)]
async fn a_batch_returns_what_it_did_not_process() {
    let emulator = started().await;
    emulator.set_faults(
        ["BatchWriteItem", "BatchGetItem"].map(|on| Rule::new(Fault::Unprocessed).on(on).calls(1, 4)).into(),
    );
    let key = |n: u32| json!({"p": {"S": n.to_string()}});
    let puts: Vec<Value> = (0..25).map(|n| json!({"PutRequest": {"Item": key(n)}})).collect();
    let mut left = json!({"rows": puts});
    let mut rounds = 0;
    while left != json!({}) {
        let answer = call(&emulator, "BatchWriteItem", json!({"RequestItems": left})).await.unwrap();
        left = answer["UnprocessedItems"].clone();
        rounds += 1;
    }
    assert!(rounds > 1);
    assert_eq!(emulator.stats().tables["rows"].items, 25);
    let mut left = json!({"rows": {"Keys": (0..25).map(key).collect::<Vec<_>>(), "ConsistentRead": true}});
    let mut found = 0;
    while left != json!({}) {
        let answer = call(&emulator, "BatchGetItem", json!({"RequestItems": left})).await.unwrap();
        found += answer["Responses"]["rows"].as_array().unwrap().len();
        left = answer["UnprocessedKeys"].clone();
    }
    assert_eq!(found, 25);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_its_client_gives_up_arrives_nevertheless() {
    let emulator = started().await;
    let latency = Fault::Latency { min_ms: 4_000, max_ms: 4_000 };
    emulator.set_faults(vec![Rule::new(latency).on("UpdateItem").nth(1)]);
    tokio::time::timeout(Duration::from_millis(10), add(&emulator)).await.unwrap_err();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!((count(&emulator).await, emulator.stats().ghosts_applied), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_fault_affects_one_statement_and_spares_the_others() {
    for (fault, code, then) in [
        (Fault::Throttle, "ThrottlingError", None),
        (Fault::Conflict, "TransactionConflict", None),
        (Fault::InternalError { applied: Some(false) }, "InternalServerError", None),
        (Fault::InternalError { applied: Some(true) }, "InternalServerError", Some("1")),
        (Fault::DropReply, "InternalServerError", Some("1")),
        (Fault::Outage, "InternalServerError", None),
        (GHOST, "InternalServerError", None),
    ] {
        let emulator = with_likes(Config::default()).await;
        emulator.set_faults(vec![Rule::new(fault).on("PartiQLInsert").table("likes").nth(2)]);
        let outcomes = batch(&emulator, ["a", "b", "c"].map(|user| insert(user, 1))).await.unwrap();
        assert_eq!(codes(&outcomes), ["", code, ""], "{fault:?}");
        assert_eq!(version(&emulator, "a").await.as_deref(), Some("1"), "{fault:?}");
        assert_eq!(version(&emulator, "b").await.as_deref(), then, "{fault:?}");
        assert_eq!(emulator.stats().faults["PartiQLInsert"][fault.name()], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_statement_is_carried_out_after_later_ones() {
    let emulator = with_likes(Config::default()).await;
    batch(&emulator, [insert("a", 1), insert("b", 1)]).await.unwrap();
    emulator.set_faults(vec![Rule::new(GHOST).on("PartiQLUpdate").calls(1, 2)]);
    let outcomes = batch(&emulator, [update("a", 2), update("b", 2)]).await.unwrap();
    assert_eq!(codes(&outcomes), ["InternalServerError"; 2]);
    assert_eq!((version(&emulator, "a").await.as_deref(), emulator.stats().ghosts_pending), (Some("1"), 2));
    assert_eq!(codes(&batch(&emulator, [update("a", 3)]).await.unwrap()), [""]);
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(version(&emulator, "a").await.as_deref(), Some("3"), "the condition keeps the older one out");
    assert_eq!(version(&emulator, "b").await.as_deref(), Some("2"));
    assert_eq!((emulator.stats().ghosts_pending, emulator.stats().ghosts_applied), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_everything_matches_requests_and_each_statement() {
    let emulator = with_likes(Config { seed: 5, ..Config::default() }).await;
    emulator.set_faults(vec![Rule::new(Fault::Throttle).chance(0.1)]);
    let (mut whole, mut single, mut done) = (0, 0, 0);
    for n in 0..40 {
        match batch(&emulator, (0..25).map(|user| insert(&format!("{n} {user}"), 1))).await {
            Err(code) => whole += usize::from(code == "ThrottlingException"),
            Ok(outcomes) => {
                let refused = codes(&outcomes).iter().filter(|code| **code == "ThrottlingError").count();
                (single, done) = (single + refused, done + outcomes.len() - refused);
            }
        }
    }
    assert!(whole > 0 && single > 40 && done > single, "{whole} {single} {done}");
    assert_eq!(emulator.stats().tables["likes"].items, done);
    emulator.set_faults(vec![Rule::new(Fault::Throttle).nth(2)]);
    let outcomes = batch(&emulator, [insert("x", 1), insert("y", 1)]).await.unwrap();
    assert_eq!(codes(&outcomes), ["", ""], "statements are no calls");
    assert_eq!(batch(&emulator, [insert("z", 1)]).await.unwrap_err(), "ThrottlingException");
}

#[tokio::test(start_paused = true)]
async fn a_rule_matches_a_single_statement_by_its_operation_and_by_its_action() {
    let emulator = with_likes(Config::default()).await;
    for (on, is_refused) in [("ExecuteStatement", true), ("PartiQLDelete", true), ("PartiQLInsert", false)] {
        emulator.set_faults(vec![Rule::new(Fault::Throttle).on(on)]);
        let outcome = execute(&emulator, "DELETE FROM likes WHERE pk = 'p' AND user_id = 'x'", json!([])).await;
        let refused = outcome.is_err_and(|error| error.starts_with("ProvisionedThroughputExceededException"));
        assert_eq!(refused, is_refused, "{on}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_takes_as_long_as_its_slowest_statement() {
    let emulator = with_likes(Config::default()).await;
    let slow = Fault::Latency { min_ms: 300, max_ms: 300 };
    emulator.set_faults(vec![Rule::new(slow).on("PartiQLInsert").calls(2, 2)]);
    let began = Instant::now();
    assert_eq!(codes(&batch(&emulator, ["a", "b", "c"].map(|user| insert(user, 1))).await.unwrap()), ["", "", ""]);
    assert!((300..=302).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}
