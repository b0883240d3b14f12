//! Counts the requests that services in this process send to the emulated DynamoDB: calls, rows and capacity units, by
//! operation and table. The test of costs and the benchmark `scale` use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpConnector as _, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use parking_lot::Mutex;
use serde_json::Value;
use tally_emulator::Emulator;

/// Asks DynamoDB to return the consumed capacity.
const REPORT: &str = r#""ReturnConsumedCapacity":"TOTAL""#;

/// The operation of a batch of statements.
const BATCH: &str = "BatchExecuteStatement";

/// The counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Successful calls, by operation.
    pub calls: BTreeMap<String, u64>,
    /// Members put, members removed, and cells updated, by successful statements.
    pub rows: [u64; 3],
    /// Write units of successful requests, by table.
    units: BTreeMap<String, f64>,
    /// Throttled statements. A batch that is throttled as a whole counts once.
    pub throttled: u64,
}

impl Counted {
    /// The calls of an operation.
    pub fn calls(&self, operation: &str) -> u64 {
        self.calls.get(operation).copied().unwrap_or_default()
    }

    /// The rows written.
    pub fn written(&self) -> u64 {
        self.rows.iter().sum()
    }

    /// The write units of a table.
    pub fn units(&self, table: &str) -> f64 {
        self.units.get(table).copied().unwrap_or_default()
    }

    /// Adds a successful write with these kinds of rows.
    fn wrote(&mut self, rows: &[Option<usize>], answer: &Value) {
        let outcomes = list(&answer["Responses"]);
        for (kind, _) in rows.iter().zip(outcomes).filter(|(_, outcome)| outcome["Error"].is_null()) {
            if let Some(kind) = kind {
                self.rows[*kind] += 1;
            }
        }
        let codes = outcomes.iter().filter_map(|outcome| outcome["Error"]["Code"].as_str());
        self.throttled += codes.filter(|code| throttles(code)).count() as u64;
        for of in list(&answer["ConsumedCapacity"]) {
            if let (Some(table), Some(units)) = (of["TableName"].as_str(), of["CapacityUnits"].as_f64()) {
                *self.units.entry(table.to_owned()).or_default() += units;
            }
        }
    }
}

/// Counts the requests of its HTTP clients to the emulator. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Meter {
    emulator: Emulator,
    counted: Arc<Mutex<Counted>>,
}

impl Meter {
    /// A meter that has counted nothing.
    pub fn new(emulator: &Emulator) -> Self {
        Self { emulator: emulator.clone(), counted: Arc::default() }
    }

    /// The counts so far.
    pub fn counted(&self) -> Counted {
        self.counted.lock().clone()
    }

    /// An HTTP client for the emulator whose requests are counted.
    pub fn client(&self) -> SharedHttpClient {
        let meter = self.clone();
        self.emulator.http_client_through(move |request, emulator| {
            let (meter, emulator) = (meter.clone(), emulator.clone());
            HttpConnectorFuture::new(async move { meter.exchange(request, &emulator).await })
        })
    }

    async fn exchange(
        &self,
        mut request: HttpRequest,
        emulator: &SharedHttpConnector,
    ) -> Result<HttpResponse, ConnectorError> {
        let operation = operation_of(&request);
        let is_write =
            ["PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", BATCH].contains(&operation.as_str());
        let rows = if is_write { reporting(&mut request) } else { Vec::new() };
        let answer = emulator.call(request).await?;
        let (body, mut counted) = (answer.body().bytes().unwrap_or_default(), self.counted.lock());
        if !answer.status().is_success() {
            counted.throttled += u64::from(operation == BATCH && throttles(&String::from_utf8_lossy(body)));
            return Ok(answer);
        }
        if is_write {
            counted.wrote(&rows, &serde_json::from_slice(body).unwrap_or_default());
        }
        *counted.calls.entry(operation).or_default() += 1;
        drop(counted);
        Ok(answer)
    }
}

/// The elements of a list, or a single value.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice)
}

/// Whether this error code means throttling.
fn throttles(code: &str) -> bool {
    ["Throttl", "ThroughputExceeded"].iter().any(|part| code.contains(part))
}

/// The operation of a request to the store.
pub(crate) fn operation_of(request: &HttpRequest) -> String {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default().to_owned()
}

/// Adds the request for capacity units to a write, and returns the kind of row of each statement.
fn reporting(request: &mut HttpRequest) -> Vec<Option<usize>> {
    let Some(text) = request.body().bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()) else {
        return Vec::new();
    };
    let asked: Value = serde_json::from_str(text).unwrap_or_default();
    if !text.contains("ReturnConsumedCapacity") {
        let asking = text.replacen('{', &format!("{{{REPORT},"), 1);
        request.headers_mut().insert("content-length", asking.len().to_string());
        *request.body_mut() = SdkBody::from(asking);
    }
    let statements = asked["Statements"].as_array().into_iter().flatten();
    statements.map(|statement| kind_of(statement["Statement"].as_str().unwrap_or_default())).collect()
}

/// Whether a statement puts a member, removes one, or updates a cell.
fn kind_of(statement: &str) -> Option<usize> {
    let is_about_rows = statement.split('"').nth(1).is_some_and(|table| table.ends_with("likes"));
    let sets =
        |name: &str| [format!("SET \"{name}\""), format!("'{name}':?")].iter().any(|set| statement.contains(set));
    is_about_rows.then(|| ["liked_at", "gone", "to"].iter().position(|name| sets(name)))?
}
