//! What goes wrong with whole batches of statements, and with single ones of them.

use std::time::Duration;

use tally_emulator::{Config, Fault, Rule};
use tokio::time::Instant;

use crate::partiql::{INSERT, SELECT, batch, codes, insert, number, started, statement, text, update, version};

const GHOST: Fault = Fault::Ghost { max_delay_ms: 60_000, hang_ms: 0 };

#[tokio::test(start_paused = true)]
async fn a_fault_strikes_one_statement_and_spares_the_others() {
    for (fault, code, then) in [
        (Fault::Throttle, "ThrottlingError", None),
        (Fault::Conflict, "TransactionConflict", None),
        (Fault::InternalError { applied: Some(false) }, "InternalServerError", None),
        (Fault::InternalError { applied: Some(true) }, "InternalServerError", Some("1")),
        (Fault::DropReply, "InternalServerError", Some("1")),
        (Fault::Outage, "InternalServerError", None),
        (GHOST, "InternalServerError", None),
    ] {
        let (emulator, client) = started(Config::default()).await;
        emulator.set_faults(vec![Rule::new(fault).on("PartiQLInsert").table("likes").nth(2)]);
        let outcomes = batch(&client, ["a", "b", "c"].map(|user| insert(user, 1))).await.unwrap();
        assert_eq!(codes(&outcomes), ["", code, ""], "{fault:?}");
        assert_eq!(version(&emulator, "a").await.as_deref(), Some("1"), "{fault:?}");
        assert_eq!(version(&emulator, "b").await.as_deref(), then, "{fault:?}");
        assert_eq!(emulator.stats().faults["PartiQLInsert"][fault.name()], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_statement_is_carried_out_after_those_that_were_sent_behind_it() {
    let (emulator, client) = started(Config::default()).await;
    batch(&client, [insert("a", 1), insert("b", 1)]).await.unwrap();
    emulator.set_faults(vec![Rule::new(GHOST).on("PartiQLUpdate").calls(1, 2)]);
    let outcomes = batch(&client, [update("a", 2), update("b", 2)]).await.unwrap();
    assert_eq!(codes(&outcomes), ["InternalServerError"; 2]);
    assert_eq!((version(&emulator, "a").await.as_deref(), emulator.stats().ghosts_pending), (Some("1"), 2));
    assert_eq!(codes(&batch(&client, [update("a", 3)]).await.unwrap()), [""]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(version(&emulator, "a").await.as_deref(), Some("3"), "the condition keeps the older one out");
    assert_eq!(version(&emulator, "b").await.as_deref(), Some("2"));
    assert_eq!((emulator.stats().ghosts_pending, emulator.stats().ghosts_applied), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_fault_strikes_a_whole_batch() {
    for (fault, answer, then) in [
        (Fault::Throttle, "ThrottlingException", None),
        (Fault::InternalError { applied: Some(true) }, "InternalServerError", Some("1")),
        (Fault::DropReply, "lost", Some("1")),
        (Fault::Outage, "lost", None),
        (GHOST, "lost", None),
    ] {
        let (emulator, client) = started(Config::default()).await;
        emulator.set_faults(vec![Rule::new(fault).on("BatchExecuteStatement").nth(1)]);
        let refused = batch(&client, ["a", "b"].map(|user| insert(user, 1))).await;
        assert_eq!(refused.unwrap_err(), answer, "{fault:?}");
        for user in ["a", "b"] {
            assert_eq!(version(&emulator, user).await.as_deref(), then, "{fault:?}");
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        let late = if fault == GHOST { Some("1") } else { then };
        assert_eq!(version(&emulator, "a").await.as_deref(), late, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_by_itself_is_struck_by_its_operation_and_by_what_it_does() {
    let (emulator, client) = started(Config::default()).await;
    for (name, fault, code) in [
        ("ExecuteStatement", Fault::Throttle, "ProvisionedThroughputExceededException"),
        ("PartiQLInsert", Fault::Conflict, "TransactionConflictException"),
        ("PartiQLInsert", Fault::InternalError { applied: Some(false) }, "InternalServerError"),
    ] {
        emulator.set_faults(vec![Rule::new(fault).on(name).nth(1)]);
        let parameters = || Some(vec![text("p"), text(code), number(1)]);
        let run = || client.execute_statement().statement(INSERT).set_parameters(parameters()).send();
        let refused = run().await.unwrap_err();
        assert_eq!(aws_sdk_dynamodb::error::ProvideErrorMetadata::code(&refused), Some(code));
        run().await.unwrap();
    }
    emulator.set_faults(vec![Rule::new(Fault::Conflict)]);
    let read = batch(&client, [statement(SELECT, [text("p"), text("none")])]).await.unwrap();
    assert_eq!(codes(&read), [""], "no read is in conflict");
}

#[tokio::test(start_paused = true)]
async fn a_rule_for_everything_meets_requests_and_each_statement() {
    let (emulator, client) = started(Config { seed: 5, ..Config::default() }).await;
    emulator.set_faults(vec![Rule::new(Fault::Throttle).chance(0.1)]);
    let (mut whole, mut single, mut done) = (0, 0, 0);
    for n in 0..40 {
        match batch(&client, (0..25).map(|user| insert(&format!("{n} {user}"), 1))).await {
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
    assert_eq!(
        codes(&batch(&client, [insert("x", 1), insert("y", 1)]).await.unwrap()),
        ["", ""],
        "statements are no calls"
    );
    assert_eq!(batch(&client, [insert("z", 1)]).await.unwrap_err(), "ThrottlingException");
}

#[tokio::test(start_paused = true)]
async fn a_batch_answers_when_its_slowest_statement_does() {
    let (emulator, client) = started(Config::default()).await;
    let slow = Fault::Latency { min_ms: 300, max_ms: 300 };
    emulator.set_faults(vec![Rule::new(slow).on("PartiQLInsert").calls(2, 2)]);
    let began = Instant::now();
    assert_eq!(codes(&batch(&client, ["a", "b", "c"].map(|user| insert(user, 1))).await.unwrap()), ["", "", ""]);
    assert!((300..=302).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}
