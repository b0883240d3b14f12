//! The fuzz targets for what is read from DynamoDB: the real readers of tables and streams over an emulator that is
//! given any bytes, and the emulator itself.

use std::cell::RefCell;

use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::{Counters, Update, Written};
use tally_adapters::dynamodb::{Checkpoints, Consistency, Rows, Segment, Streams};
use tally_core::ids::{CounterId, RowKey, Shard, StreamLabel};
use tally_core::ports::{ChangeStream, Position};
use tally_core::topic::Partition;
use tally_emulator::Config;
use tally_service::Clock;
use tally_testkit::{BEGAN, Store, every};
use tokio::runtime::Runtime;

/// The number of inputs after which an emulator is replaced, so that none grows without bound.
const LIFE: u32 = 500;

/// An emulator with the four tables, and their readers.
struct World {
    runtime: Runtime,
    store: Store,
    stream: Streams,
    label: StreamLabel,
    age: u32,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Runs `law` in this thread's world, and checks that the emulator did not panic.
fn within(law: impl AsyncFnOnce(&World)) {
    WORLD.with_borrow_mut(|slot| {
        let mut world = slot.take().filter(|world| world.age < LIFE).unwrap_or_else(World::new);
        world.age += 1;
        world.runtime.block_on(law(&world));
        assert_eq!(world.store.emulator.stats().panics, 0, "the emulator panicked");
        *slot = Some(world);
    });
}

impl World {
    fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime starts");
        let (store, stream, label) = runtime.block_on(async {
            let store = Store::with(Config { shards: 1, roll_after: None, ..Config::default() }).await;
            let stream = Streams::new(&store.connection);
            let label = stream.info().await.expect("the table has a stream").label;
            (store, stream, label)
        });
        Self { runtime, store, stream, label, age: 0 }
    }

    /// Sends a request, and returns the status of the answer.
    async fn send(&self, operation: &str, body: Vec<u8>) -> u16 {
        let answer = self.store.emulator.send(operation, body).await.expect("no faults are set");
        let (status, body) = (answer.status().as_u16(), answer.into_body());
        assert!(status == 200 || status == 400, "{operation}: {status} {body:?}");
        let json: serde_json::Value = serde_json::from_slice(&body).expect("every answer is JSON");
        assert_eq!(json.get("__type").is_some(), status == 400, "a refusal says what kind it is: {json}");
        status
    }

    /// Reads all rows as a recount does: by a scan, and by each row key.
    async fn read_rows(&self) {
        let rows = Rows::new(&self.store.connection);
        let all = every(async |after| rows.scan(Segment { index: 0, of: 1 }, after).await).await;
        for row in all.expect("rows are scanned") {
            let Ok(key) = row.pk.parse::<RowKey>() else { continue };
            let weights = rows.weights(&key, None).await.expect("a row key is read with any items in it");
            let mut known = weights.items.iter();
            let known = known.find(|(member, _)| member.as_str() == row.sort).map(|(_, weight)| *weight);
            let weight = row.weight().filter(|_| row.gone.is_none());
            assert_eq!(known.flatten(), weight, "a scan and a row key say the same of {row:?}");
        }
    }

    async fn put(&self, table: &str, item: &[u8]) -> bool {
        let body = [format!(r#"{{"TableName":"{table}","Item":"#).as_bytes(), item, b"}"].concat();
        self.send("PutItem", body).await == 200
    }
}

/// Any items in the likes table, one per line, can be read, and their stream records folded.
pub(super) fn stream_record(data: &[u8]) {
    within(async |world| {
        let mut is_any = false;
        for item in data.split(|byte| *byte == b'\n') {
            is_any |= world.put("likes", item).await;
        }
        if !is_any {
            return;
        }
        world.read_rows().await;
        let shards = world.stream.shards(&world.label).await.expect("the stream is listed");
        for shard in shards {
            let iterator = world.stream.iterator(&world.label, &shard.id, Position::Oldest).await.expect("given");
            let records = world.stream.records(&iterator, 1000).await.expect("records are read, whatever they hold");
            assert!(!records.records.is_empty());
            crate::fuzz::targets::fold(&records.records);
        }
    });
}

/// Any item in the counts table is read or refused, and an update adds its whole amount or nothing.
pub(super) fn counter(data: &[u8]) {
    const GAINED: i64 = 5;
    const SHARD: Shard = Shard::FIRST;
    within(async |world| {
        if !world.put("like_counts", &with_key(r#""post_id":{"S":"p"}"#, data)).await {
            return;
        }
        let (counters, id) = (Counters::new(&world.store.connection), "p".parse::<CounterId>().expect("an id"));
        let page = counters.scan(Segment { index: 0, of: 1 }, None).await.expect("the table is scanned");
        assert!(page.items.iter().all(|(scanned, _)| *scanned == id));
        let read = async || {
            let read = counters.read(std::slice::from_ref(&id), Consistency::Strong).await;
            read.expect("the table is read").counters.remove(&id)
        };
        if let Some(Ok(before)) = read().await
            && let Some(likes) = before.likes.checked_add(GAINED)
            && let Some(part) = before.part(SHARD).checked_add(GAINED)
        {
            let mut after = before.clone();
            after.likes = likes;
            after.parts.insert(SHARD, part);
            let update = Update { counter: id.clone(), before: Some(before), after: after.clone() };
            let written = counters.write(std::slice::from_ref(&update)).await.expect("the request is taken");
            match &written[0] {
                Written::Stored => assert_eq!(read().await, Some(Ok(after))),
                // A value that cannot be written as it was read is refused permanently and named.
                other => assert!(matches!(other, Written::Refused(_) | Written::Failed(_)), "{other:?}"),
            }
        }
        let key = r#"{"TableName":"like_counts","Key":{"post_id":{"S":"p"}}}"#;
        assert_eq!(world.send("DeleteItem", key.into()).await, 200);
    });
}

/// An item with the key attribute `key` and the attributes in `data`.
fn with_key(key: &str, data: &[u8]) -> Vec<u8> {
    let members = data.trim_ascii().strip_prefix(b"{").unwrap_or(data);
    let comma: &[u8] = if members.trim_ascii() == b"}" { b"" } else { b"," };
    [b"{", key.as_bytes(), comma, members].concat()
}

/// Any item in the checkpoints table is read or refused.
pub(super) fn checkpoint(data: &[u8]) {
    within(async |world| {
        let label = &world.label;
        let ids = [
            "config".to_owned(),
            "kafka/likes/0".to_owned(),
            "changes/config".to_owned(),
            "changes/losses".to_owned(),
            "changes/standing/0".to_owned(),
            "changes/position/0".to_owned(),
            format!("changes/shard/{label}/shardId-1"),
        ];
        let (which, attributes) = data.split_first().unwrap_or((&0, b""));
        let id = &ids[usize::from(*which) % ids.len()];
        if !world.put("checkpoints", &with_key(&format!(r#""id":{{"S":"{id}"}}"#), attributes)).await {
            return;
        }
        let checkpoints = Checkpoints::new(&world.store.connection);
        // Each call may refuse what it finds, but none may panic.
        let _ = checkpoints.deployed().await;
        let changes = Changes::new(&world.store.connection);
        let _ = changes.config().await;
        let _ = changes.losses().await;
        let _ = changes.standings(1).await;
        let _ = changes.position(0).await;
        let _ = changes.shards(label).await;
        let claims = Claims::new(&world.store.connection, Clock::starting_at(BEGAN));
        let _ = claims.read(&Partition { topic: "likes".into(), index: 0 }).await;
        let _ = claims.topic("likes").await;
        let key = format!(r#"{{"TableName":"checkpoints","Key":{{"id":{{"S":"{id}"}}}}}}"#);
        assert_eq!(world.send("DeleteItem", key.into_bytes()).await, 200);
    });
}

/// Any text as a statement, or in the place of any expression, is executed, or refused with DynamoDB's message.
pub(super) fn expression(data: &[u8]) {
    within(async |world| {
        let text = String::from_utf8_lossy(data);
        world.send("ExecuteStatement", serde_json::json!({"Statement": text}).to_string().into_bytes()).await;
        let names = serde_json::json!({"#a": "a", "#b": "b"});
        let values = serde_json::json!({":n": {"N": "1"}, ":s": {"S": "x"}, ":l": {"L": [{"S": "x"}]}, ":ss": {"SS": ["x", "y"]}});
        for (operation, place) in [
            ("UpdateItem", "UpdateExpression"),
            ("UpdateItem", "ConditionExpression"),
            ("GetItem", "ProjectionExpression"),
            ("Query", "KeyConditionExpression"),
            ("Scan", "FilterExpression"),
        ] {
            let mut request = serde_json::json!({"TableName": "like_counts", place: text});
            if operation == "UpdateItem" || operation == "GetItem" {
                request["Key"] = serde_json::json!({"post_id": {"S": "p"}});
            }
            world.send(operation, request.to_string().into_bytes()).await;
            request["ExpressionAttributeNames"] = names.clone();
            if operation != "GetItem" {
                request["ExpressionAttributeValues"] = values.clone();
            }
            world.send(operation, request.to_string().into_bytes()).await;
        }
    });
}

/// Any bytes as the body of any request.
pub(super) fn emulator_json(data: &[u8]) {
    const OPERATIONS: [&str; 23] = [
        "PutItem",
        "GetItem",
        "UpdateItem",
        "DeleteItem",
        "BatchGetItem",
        "BatchWriteItem",
        "TransactWriteItems",
        "TransactGetItems",
        "Query",
        "Scan",
        "CreateTable",
        "DescribeTable",
        "ListTables",
        "UpdateTable",
        "UpdateTimeToLive",
        "DescribeTimeToLive",
        "DeleteTable",
        "ListStreams",
        "DescribeStream",
        "GetShardIterator",
        "GetRecords",
        "ExecuteStatement",
        "BatchExecuteStatement",
    ];
    within(async |world| {
        let (which, body) = data.split_first().unwrap_or((&0, b"{}"));
        let operation = OPERATIONS[usize::from(*which) % OPERATIONS.len()];
        // The next input needs the world's own tables.
        if operation != "DeleteTable" && operation != "UpdateTable" {
            world.send(operation, body.to_vec()).await;
        }
    });
}
