//! Writes of rows whose request or statement fails, or whose answer is lost.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::registers::Registers;
use tally_core::fault::Fault;
use tally_core::register::{Answer, Write};
use tally_emulator::{Fault as Injected, Rule};

use super::{
    GONE, TABLE, confirmed, key, like, like_from, liked, start, stored, tombstone, unlike, version, write, write_all,
};

fn likes(count: usize) -> Vec<Arc<Write>> {
    (0..count).map(|n| like(&n.to_string(), 1)).collect()
}

#[tokio::test(start_paused = true)]
async fn repeating_a_write_whose_answer_was_lost_finds_its_own_row() {
    let (store, registers) = start().await;
    let events = [(like("u", 1), "PartiQLInsert"), (unlike("u", 2), "PartiQLUpdate"), (like("u", 3), "PartiQLUpdate")];
    for (event, statement) in events {
        store.faults([Rule::new(Injected::DropReply).on(statement).nth(1)]);
        let first = write(&registers, Arc::clone(&event)).await;
        assert!(matches!(first, Err(Fault::Transient(_))), "{first:?}");
        let row = stored(&store, "u").await;
        assert_eq!(write(&registers, Arc::clone(&event)).await, Ok(Answer::Older(event.version)));
        assert_eq!(stored(&store, "u").await, row);
    }
    assert_eq!(stored(&store, "u").await, liked(3));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_has_unknown_outcomes_and_is_not_sent_again() {
    let (store, _) = start().await;
    let registers = Registers::new(&store.repeating(3));
    store.faults([Rule::new(Injected::DropReply).on("BatchExecuteStatement").nth(1)]);
    for written in write_all(&registers, &likes(3), GONE, confirmed()).await {
        assert!(matches!(written, Err(Fault::Transient(_))), "{written:?}");
    }
    assert_eq!(store.requests("BatchExecuteStatement"), 1);
    assert_eq!(write_all(&registers, &likes(3), GONE, confirmed()).await, vec![Ok(Answer::Older(version(1))); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_an_older_event_finds_the_newer_row_or_its_tombstone() {
    let (store, registers) = start().await;
    let ghost = Injected::Ghost { max_delay_ms: 60_000, hang_ms: 0 };
    store.faults([Rule::new(ghost).on("PartiQLInsert").calls(1, 2)]);
    for member in ["u", "w"] {
        assert!(matches!(write(&registers, like(member, 1)).await, Err(Fault::Transient(_))));
    }
    assert_eq!(write(&registers, unlike("u", 2)).await, Ok(Answer::Stored));
    assert_eq!(write(&registers, like("w", 3)).await, Ok(Answer::Stored));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!((stored(&store, "u").await, stored(&store, "w").await), (tombstone(2), liked(3)));
    assert_eq!(store.emulator.stats().ghosts_applied, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_statement_does_not_affect_the_others_of_its_request() {
    for (fault, class) in [
        (Injected::Throttle, "throttled"),
        (Injected::Conflict, "transient"),
        (Injected::InternalError { applied: Some(false) }, "transient"),
        (Injected::Outage, "transient"),
    ] {
        let (store, registers) = start().await;
        store.faults([Rule::new(fault).on("PartiQLInsert").nth(7)]);
        for (nth, written) in write_all(&registers, &likes(25), GONE, confirmed()).await.iter().enumerate() {
            match written {
                Err(fault) => assert_eq!((nth, fault.class()), (6, class)),
                written => assert_eq!(*written, Ok(Answer::Stored), "{nth}"),
            }
        }
        assert_eq!(write(&registers, like("6", 1)).await, Ok(Answer::Stored));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_with_a_validation_error_is_refused_alone() {
    let (store, registers) = start().await;
    assert_eq!(write_all(&registers, &likes(3), GONE, confirmed()).await, vec![Ok(Answer::Stored); 3]);
    // An item of almost the maximum size has no room for another attribute.
    store.edit(TABLE, key("1"), "by_hand", json!({"S": "x".repeat(409_530)})).await;
    let row = stored(&store, "1").await;
    let events = ["0", "1", "2"].map(|member| like_from(member, 2, &"r".repeat(32)));
    let written = write_all(&registers, &events, GONE, confirmed()).await;
    assert!(matches!(written[1], Err(Fault::Poison(_))), "{:?}", written[1]);
    assert_eq!([&written[0], &written[2]], [&Ok(Answer::Stored); 2]);
    assert_eq!(stored(&store, "1").await, row);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_as_a_whole_is_sent_again_statement_by_statement() {
    let (store, registers) = start().await;
    // Two statements about one row are a validation error, which affects every other statement of their request.
    let writes = [like("u", 1), like("w", 1), like("u", 2)];
    assert_eq!(write_all(&registers, &writes, GONE, confirmed()).await, vec![Ok(Answer::Stored); 3]);
    assert_eq!((stored(&store, "u").await, stored(&store, "w").await), (liked(2), liked(1)));
    assert_eq!(store.requests("BatchExecuteStatement"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_appears_or_disappears_between_two_statements_is_written_from_the_beginning() {
    let (store, registers) = start().await;
    assert_eq!(write(&registers, unlike("u", 1)).await, Ok(Answer::Stored));
    // The tombstone expires while the first statement is under way.
    tokio::time::advance(Duration::from_secs(24 * 3_600 - 1)).await;
    store.faults([Rule::new(Injected::Latency { min_ms: 2_000, max_ms: 2_000 }).on("BatchExecuteStatement").nth(2)]);
    let written = write(&registers, like("u", 2)).await;
    assert!(matches!(written, Err(Fault::Transient(_))), "{written:?}");
    assert_eq!(write(&registers, like("u", 2)).await, Ok(Answer::Stored));
    assert_eq!(stored(&store, "u").await, liked(2));
}
