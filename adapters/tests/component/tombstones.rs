//! Tests that no reader of the table `likes` takes a tombstone, the row that a removed member leaves, for a member.

use serde_json::{Value, json};
use tally_adapters::dynamodb::{MemberRow, Rows, ScannedRow, Segment};
use tally_core::ids::{RowKey, UserId};
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};
use tally_testkit::{BEGAN, Store, every};

const KEY: &str = "p#3";
/// When the store deletes the tombstones, in seconds.
const GONE: u64 = BEGAN.0 / 1_000 + 60;

fn user(id: &str) -> UserId {
    UserId::new(id).unwrap()
}

fn key(pk: &str) -> RowKey {
    pk.parse().unwrap()
}

/// Puts a row under `pk` as the consumer writes it.
async fn put(store: &Store, pk: &str, member: &str, (name, value): (&str, Value)) {
    let mut row = json!({"pk": {"S": pk}, "user_id": {"S": member}, "post_id": {"S": "p"}, "v": {"N": "7"}});
    row[name] = value;
    store.call("PutItem", json!({"TableName": "likes", "Item": row})).await;
}

async fn like(store: &Store, pk: &str, member: &str) {
    put(store, pk, member, ("liked_at", json!({"N": "5"}))).await;
}

async fn tombstone(store: &Store, pk: &str, member: &str) {
    put(store, pk, member, ("gone", json!({"N": GONE.to_string()}))).await;
}

fn numbered(nth: usize) -> String {
    format!("u-{nth:05}")
}

/// The likes of a row key read in pages of `limit`, the length of each page, and the cost in half units.
async fn paged(store: &Store, limit: u32) -> (Vec<String>, Vec<usize>, u64) {
    let (rows, mut lengths, mut cost) = (Rows::new(&store.connection), Vec::new(), 0);
    let found = every(async |after| {
        let page = rows.likes(&key(KEY), after, Some(limit)).await?;
        lengths.push(page.items.len());
        cost += page.half_units;
        Ok(page)
    });
    let found = found.await.unwrap().into_iter().map(|like| like.user.to_string()).collect();
    (found, lengths, cost)
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_is_neither_a_like_nor_a_member_and_weighs_nothing() {
    let store = Store::start().await;
    like(&store, KEY, "is").await;
    tombstone(&store, KEY, "was").await;
    // An edit by hand: a row with `gone` is gone, whatever else it says.
    put(&store, KEY, "odd", ("gone", json!({"S": "soon"}))).await;
    store.edit("likes", json!({"pk": {"S": KEY}, "user_id": {"S": "odd"}}), "liked_at", json!({"N": "5"})).await;
    store.edit("likes", json!({"pk": {"S": KEY}, "user_id": {"S": "odd"}}), "n", json!({"S": "5"})).await;
    let (rows, key) = (Rows::new(&store.connection), key(KEY));

    let is = rows.like(&key, &user("is")).await.unwrap().unwrap();
    assert_eq!((&is.user, is.liked_at), (&user("is"), UnixMillis(5)));
    assert_eq!(rows.likes(&key, None, None).await.unwrap().items, [is]);
    for (member, present) in [("is", true), ("was", false), ("odd", false), ("never", false)] {
        assert_eq!(rows.present(std::slice::from_ref(&key), &user(member)).await, Ok(vec![present]), "{member}");
        assert_eq!(rows.like(&key, &user(member)).await.unwrap().is_some(), present, "{member}");
    }
    let weights = rows.weights(&key, None).await.unwrap().items;
    assert_eq!(weights, [((&user("is")).into(), Some(Weight::ONE))], "the others weigh as much as what is not there");

    let expected = [("is", None), ("odd", Some(u64::MAX)), ("was", Some(GONE))];
    let users = rows.users(&key, None).await.unwrap().items;
    assert_eq!(users, expected.map(|(member, gone)| MemberRow { user: user(member), gone }));
    let scanned = rows.scan(Segment { index: 0, of: 1 }, None).await.unwrap().items;
    let row = |(member, gone): (&str, Option<u64>)| {
        let stated = gone.map_or(Stated::Nothing, |_| Stated::Amount(Weight::ABSENT));
        ScannedRow { pk: KEY.to_owned(), sort: member.to_owned(), stated, gone }
    };
    assert_eq!(scanned, expected.map(row), "the row key is there, also with tombstones alone");
}

#[tokio::test(start_paused = true)]
async fn a_page_has_the_requested_number_of_likes_whatever_tombstones_are_between_them() {
    let store = Store::start().await;
    let mut likes = Vec::new();
    for nth in 0..400 {
        // Two likes in a row, between longer and longer runs of tombstones.
        if nth % 50 < 2 || nth < 10 {
            like(&store, KEY, &numbered(nth)).await;
            likes.push(numbered(nth));
        } else {
            tombstone(&store, KEY, &numbered(nth)).await;
        }
    }
    for limit in [1, 3, 7, 100] {
        let (found, lengths, _) = paged(&store, limit).await;
        assert_eq!(found, likes, "each once, in pages of {limit}");
        let (_, full) = lengths.split_last().unwrap();
        assert!(full.iter().all(|length| *length == limit as usize), "{limit}: {lengths:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_ends_early_because_of_tombstones_is_not_the_last_one() {
    let store = Store::start().await;
    for nth in 0..3_000 {
        tombstone(&store, KEY, &numbered(nth)).await;
    }
    like(&store, KEY, "v").await;
    let before = store.requests("Query");
    let (found, lengths, cost) = paged(&store, 1).await;
    assert_eq!((found, lengths), (vec!["v".to_owned()], vec![0, 0, 1]));
    let requests = store.requests("Query") - before;
    assert!(requests <= 18 && cost < 100, "{requests} requests, {cost} half units");
}
