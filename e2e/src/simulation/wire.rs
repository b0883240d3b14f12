//! What lies between one process's SDK and the emulator: its gate, the trace of what passed, and the conditions that a
//! mutant leaves out of its requests, or what it says in them.

mod report;

use std::fmt::Write as _;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;
use tally_emulator::Emulator;

use super::coverage::Coverage;
use super::gate::Gate;
use super::mutant::Mutant;
use super::ports::Shadows;
use super::trace::Trace;

/// How often a mutant whose markers are plain puts repeats one.
const REPEATS: u32 = 4;

/// One process's way to the emulator.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) name: String,
    pub(crate) emulator: SharedHttpClient,
    pub(crate) gate: Gate,
    pub(crate) mutant: Option<Mutant>,
    /// What a mutant's streamer has of windows.
    pub(crate) shadows: Shadows,
    /// Claims are taken also where another recounter has them: no verdict may rely on that courtesy.
    pub(crate) rude: bool,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
}

impl Wire {
    /// An open way to `emulator`.
    pub(crate) fn new(name: &str, emulator: &Emulator, trace: &Trace, coverage: &Coverage) -> Self {
        Self {
            name: name.to_owned(),
            emulator: emulator.http_client(),
            gate: Gate::default(),
            mutant: None,
            shadows: Shadows::default(),
            rude: false,
            trace: trace.clone(),
            coverage: coverage.clone(),
        }
    }

    fn passed(&self, operation: &str, outcome: &Result<HttpResponse, ConnectorError>) {
        let status = outcome.as_ref().map_or(0, |response| response.status().as_u16());
        let bytes = outcome.as_ref().ok().and_then(|response| response.body().bytes()).unwrap_or_default();
        if status == 400 && bytes.windows(15).any(|found| found == b"ExpiredIterator") {
            self.coverage.fired("iterator_expired");
        }
        self.trace.say(|line| {
            let _ = write!(line, "{} {operation} {status} {}", self.name, bytes.len());
        });
    }
}

impl HttpClient for Wire {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Line { wire: self.clone(), far: self.emulator.http_connector(settings, components) })
    }
}

#[derive(Clone, Debug)]
struct Line {
    wire: Wire,
    far: SharedHttpConnector,
}

impl HttpConnector for Line {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let this = self.clone();
        HttpConnectorFuture::new(async move { this.exchange(request).await })
    }
}

impl Line {
    async fn exchange(&self, mut request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let operation = operation_of(&request);
        let weakened = self.wire.weaken(&operation, &mut request);
        let copies = if weakened == Weakened::Repeated { REPEATS } else { 1 };
        let mut outcome = Err(ConnectorError::user("nothing was sent".into()));
        for copy in 0..copies {
            self.wire.gate.pass().await;
            let Some(again) = request.try_clone() else { break };
            outcome = self.far.call(again).await;
            self.wire.gate.pass().await;
            self.wire.passed(&operation, &outcome);
            if outcome.is_ok() || copy + 1 == copies {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        outcome
    }
}

fn operation_of(request: &HttpRequest) -> String {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default().to_owned()
}

/// What became of a request in a mutant's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weakened {
    /// It goes as it is.
    Not,
    /// It says something else.
    Changed,
    /// Its condition always holds.
    Unconditional,
    /// The same, and it is repeated when no answer comes.
    Repeated,
}

impl Wire {
    /// Takes the condition that this process does without out of `request`.
    fn weaken(&self, operation: &str, request: &mut HttpRequest) -> Weakened {
        let meant = match operation {
            "UpdateItem" => self.rude || self.mutant == Some(Mutant::SinkingFloor),
            "PutItem" => {
                matches!(self.mutant, Some(Mutant::UnchainedMarker | Mutant::PresenceKept | Mutant::DeltasAdded))
            }
            "TransactWriteItems" => {
                matches!(
                    self.mutant,
                    Some(Mutant::NoFence | Mutant::NoToken | Mutant::CellUnguarded | Mutant::Overwrite)
                )
            }
            _ => false,
        };
        let body = request.body().bytes().filter(|_| meant);
        let Some(mut body) = body.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok()) else {
            return Weakened::Not;
        };
        let weakened = self.weaken_body(operation, &mut body);
        if weakened != Weakened::Not {
            let text = body.to_string();
            request.headers_mut().insert("content-length", text.len().to_string());
            *request.body_mut() = SdkBody::from(text);
        }
        weakened
    }

    fn weaken_body(&self, operation: &str, body: &mut Value) -> Weakened {
        if self.rude && operation == "UpdateItem" && is_about(body, "recounts") && body["Key"]["pk"]["S"] == "claim" {
            return last_clause(body);
        }
        match self.mutant {
            Some(Mutant::NoFence) => of_transaction(body, |update| is_about(update, "checkpoints")),
            Some(Mutant::NoToken) => of_transaction(body, |update| is_about(update, "like_counts") && removes(update)),
            Some(Mutant::CellUnguarded) => of_transaction(body, |update| is_about(update, "likes")),
            Some(Mutant::Overwrite) => of_puts(body, |put| is_about(put, "recounts")),
            Some(Mutant::PresenceKept) if is_about(body, "recounts") => report::by_presence(&mut body["Item"]),
            Some(Mutant::DeltasAdded) if is_about(body, "recounts") => {
                report::by_deltas(&mut body["Item"], &self.shadows)
            }
            Some(Mutant::SinkingFloor) if is_about(body, "like_counts") && removes(body) => last_clause(body),
            Some(Mutant::UnchainedMarker) if is_about(body, "likes") && always(body) => Weakened::Repeated,
            _ => Weakened::Not,
        }
    }
}

fn is_about(request: &Value, table: &str) -> bool {
    request["TableName"].as_str() == Some(table)
}

fn removes(request: &Value) -> bool {
    request["UpdateExpression"].as_str().is_some_and(|text| text.contains("REMOVE"))
}

fn of_transaction(body: &mut Value, meant: impl Fn(&Value) -> bool) -> Weakened {
    let mut weakened = Weakened::Not;
    for item in body["TransactItems"].as_array_mut().into_iter().flatten() {
        let update = &mut item["Update"];
        if meant(update) && always(update) {
            weakened = Weakened::Unconditional;
        }
    }
    weakened
}

fn of_puts(body: &mut Value, meant: impl Fn(&Value) -> bool) -> Weakened {
    let mut weakened = Weakened::Not;
    for item in body["TransactItems"].as_array_mut().into_iter().flatten() {
        if item.get("Put").is_some_and(&meant) && always(&mut item["Put"]) {
            weakened = Weakened::Unconditional;
        }
    }
    weakened
}

/// Makes a condition hold always; what it names is still named.
fn always(request: &mut Value) -> bool {
    let Some(condition) = request["ConditionExpression"].as_str() else { return false };
    request["ConditionExpression"] = Value::from(format!("({condition}) OR NOT ({condition})"));
    true
}

/// Makes the last of a condition's clauses hold always: that of a prune is about the floor, that of a claim about who
/// has it.
fn last_clause(body: &mut Value) -> Weakened {
    let condition = body["ConditionExpression"].as_str().unwrap_or_default();
    let Some((before, floor)) = condition.rsplit_once(" AND (attribute_not_exists(") else { return Weakened::Not };
    let floor = format!("(attribute_not_exists({floor}");
    body["ConditionExpression"] = Value::from(format!("{before} AND ({floor} OR NOT {floor})"));
    Weakened::Unconditional
}
