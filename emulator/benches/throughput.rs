//! Measures how much processor time the emulator needs for one PartiQL statement of a batch, for one page of a Query,
//! and for one row of a Scan. The requests are JSON, sent in process without an SDK and without a socket.
//!
//! It is the processor time of this thread, which a busy machine does not distort (Linux only; elsewhere it is the time
//! that has passed).
//!
//! `cargo bench -p tally-emulator --bench throughput`

#![expect(clippy::print_stdout, reason = "the table is what a bench is for")]

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};
use tokio::time::Instant;

const ROUNDS: usize = 5;
const BATCHES: usize = 2000;
const STATEMENTS: usize = 25;
const SCANNED: usize = 1000;

const INSERT: &str =
    r#"INSERT INTO "likes" VALUE {'pk': ?, 'user_id': ?, 'post_id': ?, 'liked_at': ?, 'v': ?, 'region': ?}"#;
const UPDATE: &str =
    r#"UPDATE "likes" SET "liked_at" = ? SET "v" = ? REMOVE "gone" WHERE "pk" = ? AND "user_id" = ? AND "v" < ?"#;

/// Prints the time of each kind of request over some rounds, each with its own emulator.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let names = [
        "INSERT of a new key",
        "UPDATE whose condition holds",
        "UPDATE whose condition is false",
        "Query, page of up to 5 rows",
        "Scan, row in pages of 1000",
    ];
    let mut rounds: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        let emulator = created().await;
        for (nth, times) in rounds[..3].iter_mut().enumerate() {
            let statement = if nth == 0 { insert } else { update };
            let batch = |nth: usize| {
                let statements: Vec<_> = (0..STATEMENTS).map(|at| statement(nth * STATEMENTS + at)).collect();
                json!({"Statements": statements})
            };
            let batches = (0..BATCHES).map(batch);
            times.push(micros(&emulator, "BatchExecuteStatement", batches, nth == 2).await / STATEMENTS as f64);
        }
        rounds[3].push(micros(&emulator, "Query", (0..4000).map(query), false).await);
        rounds[4].push(micros(&emulator, "Scan", (0..160).map(scan), false).await / SCANNED as f64);
        assert_eq!(emulator.stats().tables["likes"].items, BATCHES * STATEMENTS);
    }
    println!("microseconds of a statement in batches of {STATEMENTS}, a page or a row; medians of {ROUNDS} rounds");
    for (name, mut times) in names.into_iter().zip(rounds) {
        times.sort_by(f64::total_cmp);
        println!("{name:<40} {:>12.2}", times[ROUNDS / 2]);
    }
}

fn insert(n: usize) -> Value {
    let (pk, user) = (json!({"S": format!("post-{}#{}", n % 1000, n % 64)}), json!({"S": format!("user-{n:08}")}));
    let parameters = json!([pk, user, {"S": "post"}, {"N": "1700000000000"}, {"N": "1"}, {"S": "eu"}]);
    json!({"Statement": INSERT, "Parameters": parameters, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"})
}

/// The first such update of a row changes it, and the second one is too old.
fn update(n: usize) -> Value {
    let (pk, user) = (json!({"S": format!("post-{}#{}", n % 1000, n % 64)}), json!({"S": format!("user-{n:08}")}));
    let parameters = json!([{"N": "1700000000001"}, {"N": "2"}, pk, user, {"N": "2"}]);
    json!({"Statement": UPDATE, "Parameters": parameters, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"})
}

fn query(n: usize) -> Value {
    json!({
        "TableName": "likes", "ConsistentRead": true, "Limit": 5, "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": format!("post-{}#{}", n % 1000, n % 64)}},
    })
}

fn scan(n: usize) -> Value {
    json!({"TableName": "likes", "ConsistentRead": true, "Limit": SCANNED, "Segment": n % 8, "TotalSegments": 8})
}

/// Sends every request, and returns the microseconds of one. Checks whether the first statement of each batch fails.
async fn micros(emulator: &Emulator, operation: &str, requests: impl Iterator<Item = Value>, fails: bool) -> f64 {
    let bodies: Vec<Bytes> = requests.map(|request| request.to_string().into()).collect();
    let count = bodies.len() as f64;
    let began = Instant::now();
    let before = used(began);
    for body in bodies {
        let answer = raw(emulator, operation, body).await;
        assert_eq!(answer.starts_with(br#"{"Responses":[{"Error""#), fails, "{answer:?}");
    }
    (used(began) - before).as_secs_f64() * 1e6 / count
}

/// The processor time that this thread has used, or the time since `began` if the system does not tell.
fn used(began: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

/// Sends one request, which must succeed.
async fn raw(emulator: &Emulator, operation: &str, body: impl Into<Bytes>) -> Bytes {
    let response = emulator.send(operation, body).await.expect("no faults are set");
    assert!(response.status().is_success(), "{:?}", response.body());
    response.into_body()
}

/// An emulator with the table `likes` and its stream.
async fn created() -> Emulator {
    let emulator = Emulator::new(Config::default());
    let keys = [("pk", "HASH"), ("user_id", "RANGE")];
    let table = json!({
        "TableName": "likes", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": keys.map(|(name, _)| json!({"AttributeName": name, "AttributeType": "S"})),
        "KeySchema": keys.map(|(name, kind)| json!({"AttributeName": name, "KeyType": kind})),
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    });
    raw(&emulator, "CreateTable", table.to_string()).await;
    emulator
}
