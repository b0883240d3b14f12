//! The test harness: the tables of a deployment in an emulated DynamoDB, in this process and without sockets, so that a run
//! with paused time is reproducible; and programs as processes, which use the same tables over a port. Also the
//! ids, definitions and readers that tests share.

mod counters;
mod engines;
pub mod http;
pub mod process;
mod redis;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Confirmed;
use tally_adapters::dynamodb::registers::Registers;
use tally_adapters::dynamodb::{Connection, Cursor, Page, Settings, ensure_tables};
use tally_core::cached::StandingAt;
use tally_core::fold::Stated;
use tally_core::ports::log::Records;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::register::{Answer, Attempt, Write};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator, Rule};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use counters::{definitions, post, set, user};
pub use engines::Engines;
pub use process::Process;
pub use redis::Redis;

/// The time limit of every wait. It suffices on a machine that is busy with other tests: joining a group of the in-process
/// Kafka takes several rebalances of nine seconds and more.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The time at which every test begins, for the store and its clients.
pub const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);

/// Writes like a consumer: if the first statement finds another row than it expects, the other statement follows.
pub async fn write_all(
    registers: &Registers,
    writes: &[Arc<Write>],
    gone: u64,
    confirmed: Confirmed,
) -> Vec<Outcome<Answer>> {
    let first: Vec<_> = writes.iter().cloned().map(Attempt::first).collect();
    let mut written = registers.write(&first, gone, confirmed).await;
    let second = first.into_iter().zip(&written).filter_map(|(attempt, written)| match written {
        Ok(Answer::Stands(stands)) => Some(Attempt { stands: Some(*stands), ..attempt }),
        _ => None,
    });
    let second = second.collect::<Vec<_>>();
    if !second.is_empty() {
        let mut answers = registers.write(&second, gone, confirmed).await.into_iter();
        for written in written.iter_mut().filter(|written| matches!(written, Ok(Answer::Stands(_)))) {
            *written = answers.next().expect("an answer for each statement");
        }
    }
    written
}

/// An emulated DynamoDB with empty tables. Clones share it.
#[derive(Clone)]
pub struct Store {
    /// The emulator, which injects faults and counts requests.
    pub emulator: Emulator,
    /// Clients that do not retry, so that the caller sees each fault.
    pub connection: Connection,
    /// The time at which it was started.
    now: UnixMillis,
    began: Instant,
}

impl Store {
    /// A store without faults.
    pub async fn start() -> Self {
        Self::with(Config::default()).await
    }

    /// A store with this configuration, except for its clock.
    ///
    /// # Panics
    /// If the tables cannot be created.
    pub async fn with(config: Config) -> Self {
        let epoch = Some(UNIX_EPOCH + Duration::from_millis(BEGAN.0));
        Self::at(BEGAN, Emulator::new(Config { epoch, ..config })).await
    }

    /// A store with this machine's clock, for processes that use it over a socket.
    ///
    /// # Panics
    /// If the tables cannot be created.
    pub async fn in_real_time(config: Config) -> Self {
        let emulator = Emulator::new(Config { epoch: None, ..config });
        Self::at(UnixMillis(emulator.stats().now_ms), emulator).await
    }

    async fn at(now: UnixMillis, emulator: Emulator) -> Self {
        let connection = Connection::in_process(&settings(1), emulator.http_client(), now);
        ensure_tables(&connection).await.expect("an emulator takes the tables");
        Self { emulator, connection, now, began: Instant::now() }
    }

    /// Clients that send each request up to `attempts` times.
    pub fn repeating(&self, attempts: u32) -> Connection {
        Connection::in_process(&settings(attempts), self.emulator.http_client(), self.now.plus(self.began.elapsed()))
    }

    /// Serves the tables at the URL that it returns, until the guard is dropped.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn serve(&self) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (emulator, mut serving) = (self.emulator.clone(), JoinSet::new());
        serving.spawn(async move { emulator.serve(listener, std::future::pending()).await.expect("it serves") });
        (url, serving)
    }

    /// Replaces the rules by which requests fail from now on.
    pub fn faults(&self, rules: impl IntoIterator<Item = Rule>) {
        self.emulator.set_faults(rules.into_iter().collect());
    }

    /// The number of requests of this operation.
    pub fn requests(&self, operation: &str) -> u64 {
        self.emulator.stats().requests.get(operation).copied().unwrap_or_default()
    }

    /// Sends a request with a JSON body from another client.
    ///
    /// # Panics
    /// If it is refused, or lost by a fault.
    pub async fn call(&self, operation: &str, body: Value) -> Value {
        let response = self.emulator.send(operation, body.to_string()).await.expect("no fault may lose this request");
        let status = response.status();
        let answer = serde_json::from_slice(response.body()).expect("an answer is JSON");
        assert!(status.is_success(), "{operation} {body}: {answer}");
        answer
    }

    /// The current item under `key`, or null.
    ///
    /// # Panics
    /// If the request is refused.
    pub async fn item(&self, table: &str, key: Value) -> Value {
        let get = json!({"TableName": table, "Key": key, "ConsistentRead": true});
        self.call("GetItem", get).await["Item"].take()
    }

    /// All items of a table, in any order.
    ///
    /// # Panics
    /// If a request is refused.
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

    /// Puts an item given as plain JSON, as no service would.
    ///
    /// # Panics
    /// If the request is refused.
    pub async fn put(&self, table: &str, plain: &Value) {
        self.call("PutItem", json!({"TableName": table, "Item": typed(plain)})).await;
    }

    /// Deletes the item under a key given as plain JSON.
    ///
    /// # Panics
    /// If the request is refused.
    pub async fn delete(&self, table: &str, plain: &Value) {
        self.call("DeleteItem", json!({"TableName": table, "Key": typed(plain)})).await;
    }

    /// Sets one attribute of an item, or removes it if `value` is null.
    ///
    /// # Panics
    /// If the request is refused.
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

/// Turns plain JSON into typed attributes: strings, numbers, and lists of numbers, which become number sets.
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

/// The settings of clients that send each request up to `attempts` times.
fn settings(attempts: u32) -> Settings {
    Settings { attempts, ..Settings::local("") }
}

/// Stores the standing of a partition as its fold does, unless one of this or a later position is stored. Returns whether it
/// was stored.
///
/// # Panics
/// If the table refuses the write.
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

/// Returns whether every partition of the log has a standing of this time or later.
///
/// # Panics
/// If the table cannot be read.
pub async fn is_fresh(changes: &Changes, partitions: u32, now: UnixMillis) -> bool {
    let standings = changes.standings(partitions).await.expect("standings are read");
    standings.values().filter(|stated| stated.standing.as_of >= Some(now)).count() == partitions as usize
}

/// Reads every page of a long answer, one after the other, and returns all items.
///
/// # Errors
/// A page cannot be read.
pub async fn every<T>(mut page: impl AsyncFnMut(Option<&Cursor>) -> Outcome<Page<T>>) -> Outcome<Vec<T>> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = page(after.as_ref()).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

/// Reads a topic to its end, or to a read that finds nothing. Returns runs of its records, each with the number of its
/// partition, in the order of the partitions
/// and of their offsets.
///
/// # Errors
/// The topic cannot be read.
pub async fn records(reader: &dyn TopicReader) -> Outcome<Vec<(u32, Records)>> {
    let mut runs = Vec::new();
    for (partition, log) in reader.logs().await? {
        let mut at = log.start;
        while at < log.end {
            let run = reader.read(&partition, at, log.end).await?;
            let Some(last) = run.last_offset() else { break };
            at = last.next();
            runs.push((partition.index, run));
        }
    }
    Ok(runs)
}

/// Waits until `holds` returns true, and returns how long that took.
///
/// # Errors
/// It did not return true within `limit`.
pub async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<Duration> {
    let began = Instant::now();
    while !holds().await {
        anyhow::ensure!(began.elapsed() <= limit, "waited {limit:?} without success: {what}");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(began.elapsed())
}

/// Waits until `holds` returns true, in real or paused time.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    if let Err(error) = until(what, PATIENCE, holds).await {
        panic!("{error}");
    }
}

/// The size of a run: the value of the variable, which may make it longer, or the default.
///
/// # Panics
/// If the value is not a number.
pub fn sized(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}
