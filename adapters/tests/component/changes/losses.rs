//! Tests how losses are stored. A loss is a part of a log, of the stream or of a table that is gone unread or may be
//! wrong. Each is opened once, under a number of its own, and is not opened again once it is closed.

use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::changes::Loss;
use tally_core::changes::LossNumber;
use tally_core::fault::Fault;
use tally_core::time::UnixMillis;
use tally_emulator::{Fault as Injected, Rule};
use tally_testkit::BEGAN;

use super::{TABLE, key, start};

fn loss(kind: &str, what: &str, closed: Option<UnixMillis>) -> Loss {
    Loss { kind: kind.into(), what: what.into(), closed }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_a_loss_is_at_least_now_and_greater_than_all_stored_ones() {
    let (_store, changes) = start().await;
    let first = changes.open_new_loss(BEGAN, "trimmed", "2026/a").await.unwrap();
    assert_eq!(first, LossNumber(BEGAN.0));
    assert_eq!(changes.open_new_loss(BEGAN, "trimmed", "2026/a").await, Ok(LossNumber(BEGAN.0 + 1)), "another time");
    let behind = changes.open_new_loss(UnixMillis(5), "gone", "2026/b").await;
    assert_eq!(behind, Ok(LossNumber(BEGAN.0 + 2)), "a clock that is behind numbers behind what is there");
    changes.close_loss(LossNumber(BEGAN.0 + 2), BEGAN).await.unwrap();
    let losses = changes.losses().await.unwrap();
    assert_eq!(losses.next(BEGAN), LossNumber(BEGAN.0 + 3), "closed ones count");
    assert_eq!(losses.next(BEGAN.plus(Duration::from_secs(9))), LossNumber(BEGAN.0 + 9_000));
    let open: Vec<_> = losses.open().map(|(number, loss)| (number.0 - BEGAN.0, loss.what.as_str())).collect();
    assert_eq!(open, [(0, "2026/a"), (1, "2026/a")]);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_opened_once_and_never_again_after_it_is_closed() {
    let (store, changes) = start().await;
    let number = LossNumber(7);
    let (ours, others) = (loss("hole", "changes/3 at 9", None), loss("trimmed", "2026/a", None));
    // The first update finds no map of losses, and the second one succeeds.
    store.faults([Rule::new(Injected::DropReply).on("UpdateItem").nth(2)]);
    assert!(changes.open_loss(number, &ours.kind, &ours.what).await.is_err());
    assert_eq!(changes.open_loss(number, &ours.kind, &ours.what).await, Ok(ours.clone()));
    assert_eq!(changes.open_loss(number, &others.kind, &others.what).await, Ok(ours.clone()), "the number is taken");
    changes.close_loss(LossNumber(8), BEGAN).await.unwrap();
    assert_eq!(changes.losses().await.unwrap().0, [(number, ours.clone())].into(), "there is no other to close");

    for at in [BEGAN, BEGAN.plus(Duration::from_secs(1))] {
        changes.close_loss(number, at).await.unwrap();
        let closed = Loss { closed: Some(BEGAN), ..ours.clone() };
        assert_eq!(changes.open_loss(number, &ours.kind, &ours.what).await, Ok(closed.clone()));
        assert_eq!(changes.losses().await.unwrap().0, [(number, closed)].into());
    }
}

#[tokio::test(start_paused = true)]
async fn two_processes_that_find_losses_at_once_never_use_the_same_number() {
    let (store, changes) = start().await;
    // All requests read before any of them writes.
    store.faults([Rule::new(Injected::Latency { min_ms: 10, max_ms: 10 })]);
    let find = |what: &'static str| changes.open_new_loss(BEGAN, "trimmed", what);
    let (one, two, three) = tokio::join!(find("a"), find("b"), find("c"));
    let mut numbers = [one, two, three].map(Result::unwrap);
    numbers.sort();
    assert_eq!(numbers.map(|number| number.0 - BEGAN.0), [0, 1, 2]);
    assert_eq!(changes.losses().await.unwrap().open().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn losses_that_were_closed_long_ago_are_dropped_and_open_ones_never() {
    let (_store, changes) = start().await;
    for n in 1..=4 {
        changes.open_loss(LossNumber(n), "trimmed", &n.to_string()).await.unwrap();
    }
    let week = Duration::from_secs(7 * 24 * 3600);
    changes.close_loss(LossNumber(1), BEGAN).await.unwrap();
    changes.close_loss(LossNumber(2), BEGAN.plus(Duration::from_secs(1))).await.unwrap();
    let numbers = async || changes.losses().await.unwrap().0.into_keys().map(|number| number.0).collect::<Vec<_>>();
    changes.close_loss(LossNumber(3), BEGAN.plus(week)).await.unwrap();
    assert_eq!(numbers().await, [1, 2, 3, 4]);
    changes.close_loss(LossNumber(3), BEGAN.plus(week + Duration::from_millis(1))).await.unwrap();
    assert_eq!(numbers().await, [2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn damaged_losses_are_poison_and_do_not_count_as_none() {
    let (store, changes) = start().await;
    changes.open_loss(LossNumber(7), "trimmed", "2026/a").await.unwrap();
    let damaged = [
        json!({"S": "none"}),
        json!({"M": {"x": {"M": {}}}}),
        json!({"M": {"7": {"S": "trimmed"}}}),
        json!({"M": {"7": {"M": {"kind": {"S": "trimmed"}}}}}),
    ];
    for value in damaged {
        store.edit(TABLE, key("changes/losses"), "losses", value.clone()).await;
        assert!(matches!(changes.losses().await, Err(Fault::Poison(_))), "{value}");
    }
    store.edit(TABLE, key("changes/losses"), "losses", json!(null)).await;
    assert!(matches!(changes.losses().await, Err(Fault::Poison(_))));
    assert!(matches!(changes.open_loss(LossNumber(8), "trimmed", "2026/a").await, Err(Fault::Poison(_))));
}
