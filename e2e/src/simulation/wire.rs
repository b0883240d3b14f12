//! The connection between the AWS SDK of one simulated process and the DynamoDB emulator. It holds requests back while
//! the process is frozen, traces them, and refuses expired signatures. For a mutant (a pipeline with one rule broken)
//! it changes requests and answers.

pub(crate) mod tampered;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpConnector as _, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::date_time::{DateTime, Format};
use serde_json::{Value, json};
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::{Connection, ensure_tables};
use tally_core::changes::{Body, Message, Opened};
use tally_core::fold::Position;
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator};
use tally_service::{Clock, Standstill};
use tally_testkit::BEGAN;
use tokio::sync::OnceCell;

use crate::meter::operation_of;
use crate::simulation::faults::Coverage;
use crate::simulation::instance::Process;
use crate::simulation::instance::Role;
use crate::simulation::mutant::Mutant;
use crate::simulation::rewrite::announced_nowhere;
use crate::simulation::trace::Trace;
use crate::simulation::wire::tampered::Earlier;
use crate::simulation::world::settings;
use crate::tables;

/// The connection of one process.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) name: String,
    pub(crate) gate: Standstill,
    /// The store's clock.
    clock: Clock,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    /// The mutant's changes.
    pub(crate) tampered: Option<Tampered>,
}

/// A mutant's changes to the requests and answers of one process.
#[derive(Clone)]
pub(crate) struct Tampered {
    mutant: Mutant,
    process: Process,
    /// Earlier answers to the process.
    earlier: Earlier,
    /// The positions that a recount gets.
    shadow: Shadow,
}

impl Tampered {
    pub(crate) fn of(mutant: Mutant, process: &Process) -> Self {
        let (earlier, shadow) = (Earlier::default(), Shadow::of(&process.world.calm.changes));
        Self { mutant, process: process.clone(), earlier, shadow }
    }
}

impl Wire {
    /// An open connection.
    pub(crate) fn new(name: &str, clock: Clock, trace: &Trace, coverage: &Coverage) -> Self {
        let (name, trace, coverage) = (name.to_owned(), trace.clone(), coverage.clone());
        Self { name, gate: Standstill::default(), clock, trace, coverage, tampered: None }
    }

    /// A client of `emulator` whose requests use this connection.
    pub(crate) fn client(self, emulator: &Emulator) -> SharedHttpClient {
        emulator.http_client_through(move |request, far| {
            let (this, far) = (self.clone(), far.clone());
            HttpConnectorFuture::new(async move { this.exchange(request, &far).await })
        })
    }

    fn passed(&self, operation: &str, outcome: &Result<HttpResponse, ConnectorError>) {
        let status = outcome.as_ref().map_or(0, |response| response.status().as_u16());
        let bytes = outcome.as_ref().ok().and_then(|response| response.body().bytes()).unwrap_or_default();
        if status == 400 && bytes.windows(15).any(|found| found == b"ExpiredIterator") {
            self.coverage.fired("iterator_expired");
        }
        self.trace.record(|line| _ = write!(line, "{} {operation} {status} {}", self.name, bytes.len()));
    }

    async fn exchange(
        &self,
        mut request: HttpRequest,
        far: &SharedHttpConnector,
    ) -> Result<HttpResponse, ConnectorError> {
        let operation = operation_of(&request);
        let asked = match &self.tampered {
            Some(tampered) => tampered.request(&operation, &mut request).await,
            None => None,
        };
        let tampered = self.tampered.as_ref().zip(asked.as_ref());
        let shadow = match tampered {
            Some((tampered, asked)) => tampered.shadow_of(&operation, asked).await,
            None => None,
        };
        self.gate.pass().await;
        let is_sleeper = self.tampered.as_ref().is_some_and(Tampered::is_signed_anew);
        if !is_sleeper && is_expired(&request, self.clock.now()) {
            self.coverage.fired("signature_expired");
            let refused = Ok(refusal());
            self.passed(&operation, &refused);
            return refused;
        }
        let mut outcome = match shadow {
            Some((shadow, asked)) => shadow.answer(asked).await,
            None => far.call(request).await,
        };
        self.gate.pass().await;
        if let (Some((tampered, asked)), Ok(response)) = (tampered, &mut outcome) {
            tampered.response(&operation, asked, response);
        }
        self.passed(&operation, &outcome);
        outcome
    }
}

/// How long a signature is valid.
const GOOD_FOR: Duration = Duration::from_secs(5 * 60);

/// Whether a request was signed too long ago.
fn is_expired(request: &HttpRequest, now: UnixMillis) -> bool {
    let signed = request.headers().get("x-amz-date").and_then(signed_at);
    signed.is_some_and(|signed| now.since(signed) > GOOD_FOR)
}

/// Parses the date of a signature, such as `20231114T221320Z`.
fn signed_at(date: &str) -> Option<UnixMillis> {
    let (year, month, day) = (date.get(..4)?, date.get(4..6)?, date.get(6..8)?);
    let (hour, minute, second) = (date.get(9..11)?, date.get(11..13)?, date.get(13..15)?);
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let millis = DateTime::from_str(&text, Format::DateTime).ok()?.to_millis().ok()?;
    u64::try_from(millis).ok().map(UnixMillis)
}

/// The answer to a request with an expired signature.
fn refusal() -> HttpResponse {
    let body = r#"{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired"}"#;
    let mut refused = HttpResponse::new(StatusCode::try_from(400).expect("a status"), SdkBody::from(body));
    refused.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    refused
}

/// A table of the mutant's own positions. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    store: Emulator,
    changes: Changes,
    /// The positions that the folds have stored.
    stored: Changes,
    made: Arc<OnceCell<()>>,
}

impl Shadow {
    /// A table beside the positions that are `stored`.
    pub(crate) fn of(stored: &Changes) -> Self {
        let epoch = std::time::UNIX_EPOCH + std::time::Duration::from_millis(BEGAN.0);
        let store = Emulator::new(Config { epoch: Some(epoch), ..Config::default() });
        let changes = Changes::new(&Connection::in_process(&settings(), store.http_client(), BEGAN));
        Self { store, changes, stored: stored.clone(), made: Arc::default() }
    }

    /// The answer of the table to a request for an item.
    async fn answer(&self, asked: &Value) -> Result<HttpResponse, ConnectorError> {
        let answer = self.store.send("GetItem", asked.to_string()).await;
        let answer = answer.map_err(|lost| ConnectorError::io(lost.into()))?;
        answer.map(SdkBody::from).try_into().map_err(|_| ConnectorError::user("the answer has odd headers".into()))
    }

    async fn put(&self, partition: u32, position: &Position) -> Option<()> {
        let connection = Connection::in_process(&settings(), self.store.http_client(), BEGAN);
        self.made.get_or_try_init(|| async { ensure_tables(&connection).await.map(drop) }).await.ok()?;
        let key = json!({"id": {"S": format!("changes/position/{partition}")}});
        tables::send(&self.store, "DeleteItem", &json!({"TableName": "checkpoints", "Key": key})).await;
        self.changes.store_position(partition, position).await.ok().map(drop)
    }
}

impl Tampered {
    /// If the mutant answers a request itself, it puts the answer into its table, and returns that with the request.
    async fn shadow_of<'a>(&self, operation: &str, asked: &'a Value) -> Option<(&Shadow, &'a Value)> {
        if self.process.role != Role::Recounter || operation != "GetItem" {
            return None;
        }
        let id = asked["Key"]["id"]["S"].as_str().unwrap_or_default();
        let partition = id.strip_prefix("changes/position/")?.parse().ok()?;
        let position = match self.mutant {
            Mutant::TailAtEnd => self.at_end(partition).await,
            Mutant::TailUnfiltered => self.unfiltered(partition).await,
            Mutant::TailBeforeLoss => self.before_loss(partition).await,
            _ => None,
        };
        self.shadow.put(partition, &position?).await?;
        Some((&self.shadow, asked))
    }

    /// The end of the log.
    async fn at_end(&self, partition: u32) -> Option<Position> {
        self.process.world.journal.follow().await.ok()?;
        self.process.world.journal.end(partition)
    }

    /// A position before the last announced loss, while one is open. Nothing tells the recount that the loss lies after it.
    async fn before_loss(&self, partition: u32) -> Option<Position> {
        self.process.world.journal.follow().await.ok()?;
        self.process.world.journal.before_loss(partition).filter(|position| !position.filter.standing().open.is_empty())
    }

    /// The fold's position, with a filter that knows the stream shard of the copies.
    async fn unfiltered(&self, partition: u32) -> Option<Position> {
        let Position { at, mut filter, ladder, last } = self.shadow.stored.position(partition).await.ok()??;
        let opened = Opened { shards: vec![announced_nowhere(&filter)?], ended: Vec::new() };
        let now = self.process.host.clock().now();
        filter.take(at, now, &Message { read: now, body: Body::Opened(opened) }, |_, _| {});
        Some(Position { at, filter, ladder, last })
    }
}
