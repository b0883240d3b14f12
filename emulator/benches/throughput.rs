//! Measures what one core of emulator serves to the real SDK on another core, and whether that stays the same as rows and
//! stream records grow.
//!
//! Each operation has two figures: requests served per second, and requests that the server's thread could serve per second of
//! its own processor time, which a busy machine does not distort (Linux only; elsewhere it repeats the first).
//!
//! Before that, it measures a statement of a batch in process, without the SDK and without a socket.
//!
//! `cargo bench -p tally-emulator --bench throughput`; `-- --quick` fills to a tenth, `-- --statements` measures only
//! statements.

#![expect(clippy::print_stdout, reason = "the table is what a bench is for")]

#[path = "throughput/figures.rs"]
mod figures;
#[path = "throughput/statements.rs"]
mod statements;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use bytes::Bytes;
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};
use tokio::time::Instant;

use self::figures::{Processor, median};

const TABLE: &str = "likes";
const ROWS_A_TRANSACTION: usize = 100;
const POSTS: usize = 1000;
const ROUNDS: usize = 5;
/// Transactions in flight, as with several partitions of a consumer.
const IN_FLIGHT: usize = 4;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(statements::measure());
    if std::env::args().any(|argument| argument == "--statements") {
        return;
    }
    let (rows, records) = if quick { (100_000, 500_000) } else { (1_000_000, 5_000_000) };
    let emulators = [Emulator::new(Config::default()), Emulator::new(Config::default())];
    let (addresses, server) = serve(emulators.clone());
    let [small, large] = std::array::from_fn(|n| Side::new(emulators[n].clone(), &format!("http://{}", addresses[n])));
    runtime.block_on(measure(small, large, &server, rows, records));
}

/// Runs the server on its own thread and runtime.
fn serve(emulators: [Emulator; 2]) -> ([std::net::SocketAddr; 2], Processor) {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        runtime.block_on(async move {
            let [small, large] = emulators;
            let listener = || async { tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free") };
            let listeners = [listener().await, listener().await];
            let addresses = listeners.each_ref().map(|one| one.local_addr().expect("a bound port has an address"));
            send.send((addresses, Processor::of_this_thread())).expect("the other side waits");
            let [first, second] = listeners;
            let never = std::future::pending;
            let (small, large) = tokio::join!(small.serve(first, never()), large.serve(second, never()));
            small.and(large).expect("the server runs");
        });
    });
    receive.recv().expect("the server starts")
}

/// An emulator of one size, and the requests to it.
struct Side {
    clients: Clients,
    load: Load,
}

impl Side {
    fn new(emulator: Emulator, endpoint: &str) -> Self {
        Self { clients: Clients::new(endpoint), load: Load::new(emulator) }
    }

    async fn fill(&mut self, rows: usize, records: usize) {
        create(&self.load.emulator).await;
        self.load.fill(rows, records).await;
    }
}

/// Alternates between the two sizes, so that other load on the machine affects both alike.
async fn measure(mut small: Side, mut large: Side, server: &Processor, rows: usize, records: usize) {
    small.fill(10_000, 10_000).await;
    large.fill(rows, records).await;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = Box::pin(figures(&small.clients, server, &mut small.load)).await;
        let after = Box::pin(figures(&large.clients, server, &mut large.load)).await;
        rounds.push((before, after));
    }
    let stats = large.load.emulator.stats();
    let table = &stats.tables[TABLE];
    let held = table.stream.as_ref().map_or(0, |stream| stream.records);
    println!("\n{} rows, {held} stream records; medians of {ROUNDS} alternated rounds", table.items);
    println!(
        "{:<40} {:>12} {:>12} {:>6} {:>16} {:>12} {:>6}",
        "a second", "10 k rows", "all rows", "ratio", "server: 10 k", "all", "ratio"
    );
    for (n, first) in rounds[0].0.iter().enumerate() {
        let median =
            |of: &dyn Fn(&Figure, &Figure) -> f64| median(rounds.iter().map(|(a, b)| of(&a[n], &b[n])).collect());
        println!(
            "{:<40} {:>12.0} {:>12.0} {:>6.2} {:>16.0} {:>12.0} {:>6.2}",
            first.name,
            median(&|a, _| a.wall),
            median(&|_, b| b.wall),
            median(&|a, b| b.wall / a.wall),
            median(&|a, _| a.server),
            median(&|_, b| b.server),
            median(&|a, b| b.server / a.server),
        );
    }
}

struct Clients {
    tables: aws_sdk_dynamodb::Client,
    streams: aws_sdk_dynamodbstreams::Client,
}

impl Clients {
    fn new(endpoint: &str) -> Self {
        let credentials = || Credentials::new("any", "any", None, None, "bench");
        let tables = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(credentials())
            .endpoint_url(endpoint);
        let streams = aws_sdk_dynamodbstreams::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(credentials())
            .endpoint_url(endpoint);
        Self {
            tables: aws_sdk_dynamodb::Client::from_conf(tables.build()),
            streams: aws_sdk_dynamodbstreams::Client::from_conf(streams.build()),
        }
    }
}

/// Sends one request without the SDK. It must succeed.
async fn raw(emulator: &Emulator, operation: &str, body: impl Into<Bytes>) -> Bytes {
    let response = emulator.send(operation, body).await.expect("no faults are set");
    assert!(response.status().is_success(), "{:?}", response.body());
    response.into_body()
}

/// Creates the `likes` table as the pipeline has it, and a table of counts.
async fn create(emulator: &Emulator) {
    let attribute = |name: &&str| json!({"AttributeName": name, "AttributeType": "S"});
    let keys = |names: &[&str]| -> Value {
        let key = |(name, kind): (&&str, &str)| json!({"AttributeName": name, "KeyType": kind});
        names.iter().zip(["HASH", "RANGE"]).map(key).collect()
    };
    let table = |name: &str, attributes: &[&str], key: &[&str]| {
        let attributes: Vec<_> = attributes.iter().map(attribute).collect();
        json!({"TableName": name, "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": attributes, "KeySchema": keys(key)})
    };
    let mut likes = table(TABLE, &["pk", "user_id", "pin"], &["pk", "user_id"]);
    likes["StreamSpecification"] = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
    let projection = json!({"ProjectionType": "KEYS_ONLY"});
    let index = json!({"IndexName": "pin", "KeySchema": keys(&["pk", "pin"]), "Projection": projection});
    likes["LocalSecondaryIndexes"] = json!([index]);
    for table in [likes, table("like_counts", &["post_id"], &["post_id"])] {
        raw(emulator, "CreateTable", table.to_string()).await;
    }
}

/// Numbered rows in an order that spreads over posts.
struct Load {
    emulator: Emulator,
    next: usize,
    limit: usize,
}

impl Load {
    fn new(emulator: Emulator) -> Self {
        Self { emulator, next: 0, limit: 10_000 }
    }

    /// The next row: a new one until the limit is reached, then an old one with another time.
    fn row(&mut self) -> (String, String, usize) {
        let (turn, n) = (self.next / self.limit, self.next % self.limit);
        self.next += 1;
        (format!("post-{}#{}", n % POSTS, n % 16), format!("user-{}", n / POSTS), turn)
    }

    /// Writes without the SDK until there are this many rows and stream records.
    async fn fill(&mut self, rows: usize, records: usize) {
        (self.next, self.limit) = (self.limit.min(self.next), rows);
        loop {
            let held = self.emulator.stats().tables[TABLE].stream.as_ref().map_or(0, |stream| stream.records);
            if held >= records {
                return;
            }
            for _ in 0..(records - held).div_ceil(ROWS_A_TRANSACTION).min(1000) {
                self.raw_transaction().await;
            }
        }
    }

    async fn raw_transaction(&mut self) {
        let actions: Vec<Value> = (0..ROWS_A_TRANSACTION)
            .map(|_| {
                let (pk, user, turn) = self.row();
                json!({"Put": {"TableName": TABLE, "Item": {
                    "pk": {"S": pk}, "user_id": {"S": user}, "post_id": {"S": pk}, "liked_at": {"N": (1_700_000_000_000u64 + turn as u64).to_string()},
                }}})
            })
            .collect();
        raw(&self.emulator, "TransactWriteItems", json!({"TransactItems": actions}).to_string()).await;
    }

    fn transaction(&mut self) -> Vec<TransactWriteItem> {
        (0..ROWS_A_TRANSACTION)
            .map(|_| {
                let (pk, user, turn) = self.row();
                let put = Put::builder()
                    .table_name(TABLE)
                    .item("pk", AttributeValue::S(pk.clone()))
                    .item("user_id", AttributeValue::S(user))
                    .item("post_id", AttributeValue::S(pk))
                    .item("liked_at", AttributeValue::N((1_700_000_000_000u64 + turn as u64).to_string()));
                TransactWriteItem::builder().put(put.build().expect("complete")).build()
            })
            .collect()
    }
}

/// Operations per second of time, and per second of the server's processor time.
struct Figure {
    name: &'static str,
    wall: f64,
    server: f64,
}

impl Figure {
    /// Measures `work`, which returns the number of operations.
    async fn of(name: &'static str, server: &Processor, work: impl Future<Output = usize>) -> Self {
        let (began, used) = (Instant::now(), server.used());
        let done = Box::pin(work).await;
        Self { name, wall: per_second(done, began.elapsed()), server: per_second(done, server.used() - used) }
    }
}

/// Measures each operation.
async fn figures(clients: &Clients, server: &Processor, load: &mut Load) -> Vec<Figure> {
    let Clients { tables, streams } = clients;
    let mut figures = Vec::new();
    let transactions: Vec<_> = (0..1000).map(|_| load.transaction()).collect();
    let writes = all(transactions, |items| async {
        tables.transact_write_items().set_transact_items(Some(items)).send().await.expect("written");
        1
    });
    figures.push(Figure::of("TransactWriteItems of 100 rows", server, writes).await);
    // Later updates of a post carry larger watermarks, in the second round as well.
    let base = load.next;
    let updates = times(4000, |n| async move {
        let update = tables
            .update_item()
            .table_name("like_counts")
            .key("post_id", AttributeValue::S(format!("post-{}", n % POSTS)))
            .update_expression("SET #w = :w, #s = if_not_exists(#s, :zero) + :d ADD #l :d, #v :d")
            .condition_expression("attribute_not_exists(#w) OR #w < :w")
            .set_expression_attribute_names(Some(HashMap::from(
                [("#w", "w1"), ("#s", "s1"), ("#l", "likes"), ("#v", "version")]
                    .map(|(k, v)| (k.to_owned(), v.to_owned())),
            )))
            .expression_attribute_values(":w", AttributeValue::S(format!("{:040}", base + n)))
            .expression_attribute_values(":zero", AttributeValue::N("0".into()))
            .expression_attribute_values(":d", AttributeValue::N("1".into()));
        update.send().await.expect("the watermark is new");
        1
    });
    figures.push(Figure::of("UpdateItem, conditional", server, updates).await);
    let queries = times(4000, |n| async move {
        let page = tables
            .query()
            .table_name(TABLE)
            .consistent_read(true)
            .limit(5)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", AttributeValue::S(format!("post-{}#{}", n % POSTS, n % 16)));
        assert_eq!(page.send().await.expect("read").count(), 5);
        1
    });
    figures.push(Figure::of("Query, pages of 5 rows", server, queries).await);
    let scans = times(160, |n| async move {
        let segment = i32::try_from(n % 8).expect("eight segments");
        tables
            .scan()
            .table_name(TABLE)
            .consistent_read(true)
            .segment(segment)
            .total_segments(8)
            .limit(1000)
            .send()
            .await
            .expect("read")
            .items()
            .len()
    });
    figures.push(Figure::of("Scan, rows, in pages of 1000", server, scans).await);
    figures.push(Figure::of("GetRecords, records, in pages of 1000", server, records(tables, streams)).await);
    figures
}

async fn records(tables: &aws_sdk_dynamodb::Client, streams: &aws_sdk_dynamodbstreams::Client) -> usize {
    let described = tables.describe_table().table_name(TABLE).send().await.expect("described");
    let arn = described.table().and_then(|table| table.latest_stream_arn()).expect("the table has a stream").to_owned();
    let stream = streams.describe_stream().stream_arn(&arn).send().await.expect("described");
    let shards = stream.stream_description().expect("described").shards().to_vec();
    let mut read = 0;
    for shard in shards {
        let kind = aws_sdk_dynamodbstreams::types::ShardIteratorType::TrimHorizon;
        let iterator =
            streams.get_shard_iterator().stream_arn(&arn).set_shard_id(shard.shard_id).shard_iterator_type(kind);
        let mut iterator = iterator.send().await.expect("given").shard_iterator;
        for _ in 0..10 {
            let page = streams.get_records().set_shard_iterator(iterator).send().await.expect("read");
            read += page.records().len();
            iterator = page.next_shard_iterator;
        }
    }
    read
}

async fn times<F: Future<Output = usize>>(count: usize, work: impl Fn(usize) -> F) -> usize {
    all((0..count).collect(), work).await
}

/// Runs `work` on all pieces, a few at a time, and returns the sum of the results.
async fn all<T, F: Future<Output = usize>>(pieces: Vec<T>, work: impl Fn(T) -> F) -> usize {
    let queue = std::sync::Mutex::new(pieces.into_iter());
    let worker = async || {
        let mut done = 0;
        loop {
            let piece = queue.lock().expect("no worker panics").next();
            match piece {
                Some(piece) => done += Box::pin(work(piece)).await,
                None => return done,
            }
        }
    };
    const _: () = assert!(IN_FLIGHT == 4, "as many workers as are joined below");
    let (a, b, c, d) = tokio::join!(worker(), worker(), worker(), worker());
    a + b + c + d
}

fn per_second(count: usize, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^53")]
    let count = count as f64;
    count / elapsed.as_secs_f64()
}
