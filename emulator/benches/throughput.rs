//! Measures the processor time of requests in process, without an SDK and without a socket, and whether it stays the same as
//! rows and stream records grow.
//!
//! It is the processor time of this thread, which a busy machine does not distort (Linux only; elsewhere it is the time that
//! has passed).
//!
//! `cargo bench -p tally-emulator --bench throughput`; `-- --quick` fills to a tenth, `-- --statements` measures only
//! statements of a batch.

#![expect(clippy::print_stdout, reason = "the table is what a bench is for")]

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};
use tokio::time::Instant;

const TABLE: &str = "likes";
const ROUNDS: usize = 5;
const BATCHES: usize = 2000;
const STATEMENTS: usize = 25;
const ROWS_A_TRANSACTION: usize = 100;
const POSTS: usize = 1000;

const INSERT: &str =
    r#"INSERT INTO "likes" VALUE {'pk': ?, 'user_id': ?, 'post_id': ?, 'liked_at': ?, 'v': ?, 'region': ?}"#;
const UPDATE: &str =
    r#"UPDATE "likes" SET "liked_at" = ? SET "v" = ? REMOVE "gone" WHERE "pk" = ? AND "user_id" = ? AND "v" < ?"#;

fn main() {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(statements());
    if !asked("--statements") {
        let (rows, records) = if asked("--quick") { (100_000, 500_000) } else { (1_000_000, 5_000_000) };
        runtime.block_on(growth(rows, records));
    }
}

/// Prints the time of a statement over some rounds, each with its own emulator.
async fn statements() {
    let names = ["INSERT of a new key", "UPDATE whose condition holds", "UPDATE whose condition is false"];
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let emulator = created().await;
        for (nth, name) in names.into_iter().enumerate() {
            let statement = if nth == 0 { insert } else { update };
            let batch = |nth: usize| -> Value {
                let statements: Vec<_> = (0..STATEMENTS).map(|at| statement(nth * STATEMENTS + at)).collect();
                json!({"Statements": statements})
            };
            let work = Work::new(name, "BatchExecuteStatement", STATEMENTS, (0..BATCHES).map(batch));
            rounds[nth].push(work.micros(&emulator, nth == 2).await);
        }
        assert_eq!(emulator.stats().tables[TABLE].items, BATCHES * STATEMENTS);
    }
    println!("microseconds a statement of BatchExecuteStatement, {STATEMENTS} each; medians of {ROUNDS} rounds");
    for (name, micros) in names.into_iter().zip(rounds) {
        println!("{name:<40} {:>12.2}", median(micros));
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

/// Prints the time of each operation with few rows and with many. It alternates between the two, so that other load on the
/// machine affects both alike.
async fn growth(rows: usize, records: usize) {
    let (mut small, mut large) = (Load::new().await, Load::new().await);
    small.fill(10_000, 10_000).await;
    large.fill(rows, records).await;
    let mut rounds: Vec<(&str, Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..ROUNDS {
        for (nth, (few, many)) in small.works().await.into_iter().zip(large.works().await).enumerate() {
            if rounds.len() <= nth {
                rounds.push((few.name, Vec::new(), Vec::new()));
            }
            rounds[nth].1.push(few.micros(&small.emulator, false).await);
            rounds[nth].2.push(many.micros(&large.emulator, false).await);
        }
    }
    println!("\nmicroseconds each; {rows} rows, {} stream records; medians of {ROUNDS} rounds", large.records());
    println!("{:<40} {:>12} {:>12} {:>6}", "", "10 k rows", "all rows", "ratio");
    for (name, few, many) in rounds {
        let (few, many) = (median(few), median(many));
        println!("{name:<40} {few:>12.2} {many:>12.2} {:>6.2}", many / few);
    }
}

/// Requests of one kind, each for the same number of rows, records or statements.
struct Work {
    name: &'static str,
    operation: &'static str,
    parts: usize,
    bodies: Vec<Bytes>,
}

impl Work {
    fn new(name: &'static str, operation: &'static str, parts: usize, requests: impl Iterator<Item = Value>) -> Self {
        Self { name, operation, parts, bodies: requests.map(|request| request.to_string().into()).collect() }
    }

    /// Sends every request, and returns the microseconds for a part. Of a batch, the first statement fails or does not.
    async fn micros(&self, emulator: &Emulator, fails: bool) -> f64 {
        let began = Instant::now();
        let before = used(began);
        for body in &self.bodies {
            let answer = raw(emulator, self.operation, body.clone()).await;
            assert_eq!(answer.starts_with(br#"{"Responses":[{"Error""#), fails, "{answer:?}");
        }
        (used(began) - before).as_secs_f64() * 1e6 / (self.bodies.len() * self.parts) as f64
    }
}

/// The processor time that this thread has used, or the time since `began` if the system does not tell.
fn used(began: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Sends one request, which must succeed.
async fn raw(emulator: &Emulator, operation: &str, body: impl Into<Bytes>) -> Bytes {
    let response = emulator.send(operation, body).await.expect("no faults are set");
    assert!(response.status().is_success(), "{:?}", response.body());
    response.into_body()
}

/// An emulator with the table `likes` and its stream, and a table of counts.
async fn created() -> Emulator {
    let emulator = Emulator::new(Config::default());
    for (name, keys) in [(TABLE, &["pk", "user_id"][..]), ("like_counts", &["post_id"])] {
        let attributes = keys.iter().map(|name| json!({"AttributeName": name, "AttributeType": "S"}));
        let schema = keys.iter().zip(["HASH", "RANGE"]);
        let schema = schema.map(|(name, kind)| json!({"AttributeName": name, "KeyType": kind}));
        let mut table = json!({
            "TableName": name, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": attributes.collect::<Vec<_>>(), "KeySchema": schema.collect::<Vec<_>>(),
        });
        if name == TABLE {
            table["StreamSpecification"] = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
        }
        raw(&emulator, "CreateTable", table.to_string()).await;
    }
    emulator
}

/// Numbered rows in an order that spreads over posts.
struct Load {
    emulator: Emulator,
    next: usize,
    limit: usize,
}

impl Load {
    async fn new() -> Self {
        Self { emulator: created().await, next: 0, limit: 0 }
    }

    /// Writes until there are this many rows and stream records.
    async fn fill(&mut self, rows: usize, records: usize) {
        self.limit = rows;
        while self.records() < records {
            for _ in 0..(records - self.records()).div_ceil(ROWS_A_TRANSACTION).min(1000) {
                let transaction = self.transaction();
                raw(&self.emulator, "TransactWriteItems", transaction.to_string()).await;
            }
        }
    }

    fn records(&self) -> usize {
        self.emulator.stats().tables[TABLE].stream.as_ref().map_or(0, |stream| stream.records)
    }

    /// Puts the next rows: new ones until the limit is reached, then old ones with another time.
    fn transaction(&mut self) -> Value {
        let mut put = || {
            let (turn, n) = (self.next / self.limit, self.next % self.limit);
            self.next += 1;
            let pk = format!("post-{}#{}", n % POSTS, n % 16);
            let time = (1_700_000_000_000 + turn).to_string();
            json!({"Put": {"TableName": TABLE, "Item": {
                "pk": {"S": pk}, "user_id": {"S": format!("user-{}", n / POSTS)}, "post_id": {"S": pk}, "liked_at": {"N": time},
            }}})
        };
        json!({"TransactItems": (0..ROWS_A_TRANSACTION).map(|_| put()).collect::<Vec<_>>()})
    }

    /// The requests of each operation.
    async fn works(&mut self) -> [Work; 5] {
        let transactions: Vec<_> = (0..200).map(|_| self.transaction()).collect();
        // Later updates of a post carry larger watermarks, in the second round as well.
        let base = self.next;
        let updates = (0..4000).map(|n| {
            json!({
                "TableName": "like_counts", "Key": {"post_id": {"S": format!("post-{}", n % POSTS)}},
                "UpdateExpression": "SET #w = :w, #s = if_not_exists(#s, :zero) + :d ADD #l :d, #v :d",
                "ConditionExpression": "attribute_not_exists(#w) OR #w < :w",
                "ExpressionAttributeNames": {"#w": "w1", "#s": "s1", "#l": "likes", "#v": "version"},
                "ExpressionAttributeValues": {":w": {"S": format!("{:040}", base + n)}, ":zero": {"N": "0"}, ":d": {"N": "1"}},
            })
        });
        let queries = (0..4000).map(|n| {
            json!({
                "TableName": TABLE, "ConsistentRead": true, "Limit": 5, "KeyConditionExpression": "pk = :pk",
                "ExpressionAttributeValues": {":pk": {"S": format!("post-{}#{}", n % POSTS, n % 16)}},
            })
        });
        let scans = (0..160).map(|n| {
            json!({"TableName": TABLE, "ConsistentRead": true, "Limit": 1000, "Segment": n % 8, "TotalSegments": 8})
        });
        let iterators = self.iterators().await;
        let records =
            iterators.iter().cycle().take(40).map(|iterator| json!({"ShardIterator": iterator, "Limit": 1000}));
        [
            Work::new("TransactWriteItems, rows", "TransactWriteItems", ROWS_A_TRANSACTION, transactions.into_iter()),
            Work::new("UpdateItem, conditional", "UpdateItem", 1, updates),
            Work::new("Query, pages of 5 rows", "Query", 1, queries),
            Work::new("Scan, rows, in pages of 1000", "Scan", 1000, scans),
            Work::new("GetRecords, records, in pages of 1000", "GetRecords", 1000, records),
        ]
    }

    /// The beginning of every shard.
    async fn iterators(&self) -> Vec<Value> {
        let ask = async |operation: &str, request: Value| -> Value {
            let answer = raw(&self.emulator, operation, request.to_string()).await;
            serde_json::from_slice(&answer).expect("an answer is JSON")
        };
        let arn = &ask("DescribeTable", json!({"TableName": TABLE})).await["Table"]["LatestStreamArn"];
        let described = ask("DescribeStream", json!({"StreamArn": arn})).await;
        let mut iterators = Vec::new();
        for shard in described["StreamDescription"]["Shards"].as_array().into_iter().flatten() {
            let first = json!({"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"});
            iterators.push(ask("GetShardIterator", first).await["ShardIterator"].clone());
        }
        iterators
    }
}
