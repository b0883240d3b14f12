//! What tests start: the tables of a deployment in an emulated DynamoDB, in this process and without sockets, so that paused
//! time gives the same run each time; and programs as processes of their own, over the same tables on a port.

mod engines;
pub mod http;
pub mod process;
mod redis;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ::http::Request;
use bytes::Bytes;
use serde_json::{Value, json};
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Confirmed;
use tally_adapters::dynamodb::registers::{Registers, Written};
use tally_adapters::dynamodb::{Connection, Settings, ensure_tables};
use tally_core::cached::StandingAt;
use tally_core::fold::Stated;
use tally_core::register::{Attempt, Write};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator, Rule};
use tokio::time::{Instant, sleep};

pub use engines::Engines;
pub use process::Process;
pub use redis::Redis;

/// Long enough for anything on a machine that is busy with other tests: joining a group of the in-process Kafka takes several
/// rebalances of nine seconds and more.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// When every test begins, by the clocks of the store and of its clients.
pub const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);

/// Writes as a consumer does: where a row is not what the first statement takes it for, the other one follows.
pub async fn write_all(registers: &Registers, writes: &[Arc<Write>], gone: u64, confirmed: Confirmed) -> Vec<Written> {
    let first: Vec<_> = writes.iter().cloned().map(Attempt::first).collect();
    let mut written = registers.write(&first, gone, confirmed).await;
    let second = first.into_iter().zip(&written).filter_map(|(attempt, written)| match written {
        Written::Stands(stands) => Some(Attempt { stands: Some(*stands), ..attempt }),
        _ => None,
    });
    let second = second.collect::<Vec<_>>();
    if !second.is_empty() {
        let mut answers = registers.write(&second, gone, confirmed).await.into_iter();
        for written in written.iter_mut().filter(|written| matches!(written, Written::Stands(_))) {
            *written = answers.next().expect("an answer for each statement");
        }
    }
    written
}

/// An emulated store with empty tables.
pub struct Store {
    /// The emulator, which takes faults and counts requests.
    pub emulator: Emulator,
    /// Clients that send each request once, so that a fault is met by the caller.
    pub connection: Connection,
    /// The time when it began.
    now: UnixMillis,
    began: Instant,
}

impl Store {
    /// A store that works.
    pub async fn start() -> Self {
        Self::with(Config::default()).await
    }

    /// A store of a configuration, but for its clock.
    ///
    /// # Panics
    /// It does not take the tables.
    pub async fn with(config: Config) -> Self {
        let epoch = Some(UNIX_EPOCH + Duration::from_millis(BEGAN.0));
        Self::at(BEGAN, Emulator::new(Config { epoch, ..config })).await
    }

    /// A store whose clock is this machine's, for processes that use it over a socket.
    ///
    /// # Panics
    /// It does not take the tables.
    pub async fn in_real_time(config: Config) -> Self {
        let emulator = Emulator::new(Config { epoch: None, ..config });
        Self::at(UnixMillis(emulator.stats().now_ms), emulator).await
    }

    async fn at(now: UnixMillis, emulator: Emulator) -> Self {
        let connection = Connection::in_process(&settings(1), emulator.http_client(), now);
        ensure_tables(&connection).await.expect("an emulator takes the tables");
        Self { emulator, connection, now, began: Instant::now() }
    }

    /// Clients that send a request up to so many times.
    pub fn repeating(&self, attempts: u32) -> Connection {
        Connection::in_process(&settings(attempts), self.emulator.http_client(), self.now.plus(self.began.elapsed()))
    }

    /// From now on requests go wrong as these rules say; what was in force before is not.
    pub fn faults(&self, rules: impl IntoIterator<Item = Rule>) {
        self.emulator.set_faults(rules.into_iter().collect());
    }

    /// How often an operation was requested.
    pub fn requests(&self, operation: &str) -> u64 {
        self.emulator.stats().requests.get(operation).copied().unwrap_or_default()
    }

    /// Answers one request of another client, in JSON.
    ///
    /// # Panics
    /// It is refused, or a fault loses it.
    pub async fn call(&self, operation: &str, body: Value) -> Value {
        let request = Request::post("http://localhost/")
            .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
            .header("authorization", "any")
            .body(Bytes::from(body.to_string()))
            .expect("a request of fixed parts");
        let response = self.emulator.handle(request).await.expect("no fault may lose this request");
        let status = response.status();
        let answer = serde_json::from_slice(response.body()).expect("an answer is JSON");
        assert!(status.is_success(), "{operation} {body}: {answer}");
        answer
    }

    /// The item under `key` as it is now; null where there is none.
    ///
    /// # Panics
    /// The request is refused.
    pub async fn item(&self, table: &str, key: Value) -> Value {
        let get = json!({"TableName": table, "Key": key, "ConsistentRead": true});
        self.call("GetItem", get).await["Item"].take()
    }

    /// All items of a table, in no order.
    ///
    /// # Panics
    /// A request is refused.
    pub async fn items(&self, table: &str) -> Vec<Value> {
        let (mut scan, mut items) = (json!({"TableName": table, "ConsistentRead": true}), Vec::new());
        loop {
            let mut page = self.call("Scan", scan.clone()).await;
            items.append(page["Items"].as_array_mut().expect("a scan has items"));
            match page["LastEvaluatedKey"].take() {
                Value::Null => return items,
                last => scan["ExclusiveStartKey"] = last,
            }
        }
    }

    /// Puts an item of plain JSON, as no service would.
    ///
    /// # Panics
    /// The request is refused.
    pub async fn put(&self, table: &str, plain: &Value) {
        self.call("PutItem", json!({"TableName": table, "Item": typed(plain)})).await;
    }

    /// Deletes the item under a key of plain JSON.
    ///
    /// # Panics
    /// The request is refused.
    pub async fn delete(&self, table: &str, plain: &Value) {
        self.call("DeleteItem", json!({"TableName": table, "Key": typed(plain)})).await;
    }

    /// Sets one attribute of an item by hand, or removes it where `value` is null.
    ///
    /// # Panics
    /// The request is refused.
    pub async fn edit(&self, table: &str, key: Value, attribute: &str, value: Value) {
        let names = json!({"#name": attribute});
        let mut request = json!({"TableName": table, "Key": key, "ExpressionAttributeNames": names});
        if value.is_null() {
            request["UpdateExpression"] = json!("REMOVE #name");
        } else {
            request["UpdateExpression"] = json!("SET #name = :value");
            request["ExpressionAttributeValues"] = json!({":value": value});
        }
        self.call("UpdateItem", request).await;
    }
}

/// Attributes of plain JSON, as they are in requests: texts, numbers, and lists of numbers, which are sets.
fn typed(plain: &Value) -> Value {
    let fields = plain.as_object().expect("attributes have names").iter().map(|(name, value)| {
        let value = match value {
            Value::String(text) => json!({"S": text}),
            Value::Array(set) => json!({"NS": set.iter().map(Value::to_string).collect::<Vec<_>>()}),
            number => json!({"N": number.to_string()}),
        };
        (name.clone(), value)
    });
    Value::Object(fields.collect())
}

/// How clients are set up that send a request up to so many times.
fn settings(attempts: u32) -> Settings {
    Settings { attempts, ..Settings::local("") }
}

/// States what may be said of a partition as its fold does, unless that was said of this or a later place; whether it was.
///
/// # Panics
/// The table takes no write.
pub async fn stand(changes: &Changes, partition: u32, standing: &StandingAt) -> bool {
    loop {
        let stands = changes.stated(partition).await.expect("a standing is read").unwrap_or_default();
        if stands.revision > 0 && stands.standing.at >= standing.at {
            return false;
        }
        let stated = Stated { standing: standing.clone(), last: None, revision: stands.revision + 1, ..stands };
        if changes.state(partition, &stated).await.expect("a standing is stored").is_ok() {
            return true;
        }
    }
}

/// How long it took until `holds`.
///
/// # Errors
/// It did not within `limit`.
pub async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<Duration> {
    let began = Instant::now();
    while !holds().await {
        anyhow::ensure!(began.elapsed() <= limit, "waited {limit:?} in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(began.elapsed())
}

/// Waits, in whatever time rules, until `holds`.
///
/// # Panics
/// It never does.
pub async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    if let Err(error) = until(what, PATIENCE, holds).await {
        panic!("{error}");
    }
}

/// A number that a run may be given by a variable, to make it longer than it is by default.
///
/// # Panics
/// It is no number.
pub fn sized(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}
