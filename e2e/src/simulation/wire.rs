//! What lies between one process's SDK and the emulator: its gate, the trace of what passed, signatures that are too old, and what
//! a mutant leaves out of its requests, or makes of what it is answered.

mod requests;
mod responses;
mod shadow;
mod signature;
mod statements;

use std::fmt::Write as _;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use tally_emulator::Emulator;
use tally_service::Clock;

use super::coverage::Coverage;
use super::gate::Gate;
use super::trace::Trace;

pub(crate) use requests::Remembered;
pub(crate) use responses::Earlier;
pub(crate) use shadow::Shadow;

use super::journal::Journal;
use super::kafka::Beyond;
use super::mutant::Mutant;
use super::ports::{Asked, UnderWay};

/// One process's way to the emulator.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) name: String,
    pub(crate) emulator: SharedHttpClient,
    pub(crate) gate: Gate,
    /// The store's clock.
    clock: Clock,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    /// What a mutant does on the way.
    pub(crate) tampered: Option<Tampered>,
}

/// A mutant's hands on the wire of one process.
#[derive(Clone, Debug)]
pub(crate) struct Tampered {
    pub(crate) mutant: Mutant,
    pub(crate) role: super::instance::Role,
    /// Whether its clock is behind that of the store.
    pub(crate) is_behind: bool,
    pub(crate) store: Emulator,
    pub(crate) journal: Journal,
    /// What the process has on its way to the log.
    pub(crate) under_way: UnderWay,
    /// What it has asked of the log.
    pub(crate) asked: Asked,
    /// What all processes have stored before.
    pub(crate) remembered: Remembered,
    /// What the process was answered before.
    pub(crate) earlier: Earlier,
    /// The positions that a recount is told.
    pub(crate) shadow: Shadow,
    /// The process's host: what is under way ends with it.
    pub(crate) host: tally_service::Host,
    /// What it has stored as done that is not.
    pub(crate) beyond: Option<Beyond>,
}

impl Wire {
    /// An open way to `emulator`.
    pub(crate) fn new(name: &str, emulator: &Emulator, clock: Clock, trace: &Trace, coverage: &Coverage) -> Self {
        Self {
            name: name.to_owned(),
            emulator: emulator.http_client(),
            gate: Gate::default(),
            clock,
            trace: trace.clone(),
            coverage: coverage.clone(),
            tampered: None,
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
        let far = self.emulator.http_connector(settings, components);
        let shadow = self.tampered.as_ref().map(|tampered| tampered.shadow.client());
        let shadow = shadow.map(|shadow| shadow.http_connector(settings, components));
        SharedHttpConnector::new(Line { wire: self.clone(), far, shadow })
    }
}

#[derive(Clone, Debug)]
struct Line {
    wire: Wire,
    far: SharedHttpConnector,
    shadow: Option<SharedHttpConnector>,
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
        let mut far = &self.far;
        let asked = match &self.wire.tampered {
            Some(tampered) => tampered.request(&operation, &mut request).await,
            None => None,
        };
        if let (Some(tampered), Some(asked), Some(shadow)) = (&self.wire.tampered, &asked, &self.shadow)
            && tampered.is_shadowed(&operation, asked).await
        {
            far = shadow;
        }
        self.wire.gate.pass().await;
        let is_sleeper = self.wire.tampered.as_ref().is_some_and(Tampered::is_signed_anew);
        if !is_sleeper && signature::is_expired(&request, self.wire.clock.now()) {
            self.wire.coverage.fired("signature_expired");
            let refused = signature::refusal();
            self.wire.passed(&operation, &refused);
            return refused;
        }
        let mut outcome = far.call(request).await;
        self.wire.gate.pass().await;
        if let (Some(tampered), Some(asked), Ok(response)) = (&self.wire.tampered, &asked, &mut outcome) {
            tampered.response(&operation, asked, response);
        }
        self.wire.passed(&operation, &outcome);
        outcome
    }
}

fn operation_of(request: &HttpRequest) -> String {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default().to_owned()
}
