//! Calls without what the SDK builds anew around each: one signed POST over the SDK's own HTTP client, for requests that are
//! made once for every few likes. Where requests go and who signs them is the SDK's business still: it is asked once, by a
//! call of its own that ends before anything is sent.

mod answer;
mod batch;
mod signing;
#[cfg(test)]
pub(super) mod tests;
mod value;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::http::{HttpClient as _, HttpConnector as _};
use aws_smithy_runtime_api::client::http::{HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tokio::sync::OnceCell;

use self::signing::Signer;
use super::batch::Jitter;
use super::fault::{fault, in_one_line, of_service};
use super::settings::Settings;

pub(super) use self::answer::{Refusal, Updated};
pub(super) use self::batch::{Batch, BatchGetItem};
pub(super) use self::value::{AsItem, AsKey, AsValues, Number, Text};

/// The calls that are made so.
pub(super) const UPDATE_ITEM: &str = "DynamoDB_20120810.UpdateItem";
pub(super) const TRANSACT_WRITE_ITEMS: &str = "DynamoDB_20120810.TransactWriteItems";
pub(super) const BATCH_GET_ITEM: &str = "DynamoDB_20120810.BatchGetItem";
pub(super) const GET_RECORDS: &str = "DynamoDBStreams_20120810.GetRecords";

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.0");
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tally/", env!("CARGO_PKG_VERSION")));

/// Cloning it is cheap and shares connections and credentials.
#[derive(Clone, Debug)]
pub(super) struct Direct {
    service: Service,
    route: Arc<OnceCell<Route>>,
    attempts: u32,
    connect_timeout: Duration,
    attempt_timeout: Duration,
    jitter: Jitter,
}

/// The SDK's client of the service that is called.
#[derive(Clone, Debug)]
pub(super) enum Service {
    Tables(aws_sdk_dynamodb::Client),
    Streams(aws_sdk_dynamodbstreams::Client),
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The service refused it, by name.
    Refused(Box<Refusal>),
    /// Anything else; transient where it is not known whether the request was carried out.
    Fault(Fault),
}

impl Direct {
    /// `settings` and `jitter` are those of the SDK's client.
    pub(super) fn over(service: Service, settings: &Settings, jitter: &Jitter) -> Self {
        Self {
            service,
            route: Arc::default(),
            attempts: settings.attempts.max(1),
            connect_timeout: settings.connect_timeout,
            attempt_timeout: settings.attempt_timeout,
            jitter: jitter.clone(),
        }
    }

    /// Makes the call `target` about `table`. What may pass is tried again, as often as the SDK would.
    ///
    /// # Errors
    /// See [`Failed`].
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        target: &'static str,
        table: &str,
        request: &impl Serialize,
    ) -> Result<T, Failed> {
        let body = serde_json::to_vec(request).map_err(|error| Failed::Fault(Fault::Fatal(error.to_string())))?;
        let body = Bytes::from(body);
        // Asked once, and large: no call carries it.
        let route = self.route.get_or_try_init(|| Box::pin(self.ask(table))).await.map_err(Failed::Fault)?;
        let mut tries = 0;
        loop {
            let attempt = tokio::time::timeout(self.attempt_timeout, route.attempt(target, table, body.clone())).await;
            let failed = match attempt {
                Ok(Ok(answer)) => return read(table, &answer),
                Ok(Err(failed)) => failed,
                Err(elapsed) => Failed::Fault(Fault::Transient(format!("{table}: {elapsed}"))),
            };
            tries += 1;
            if tries == self.attempts || !failed.may_pass(table) {
                return Err(failed);
            }
            tokio::time::sleep(Backoff::STORE.wait(tries - 1, self.jitter.fraction())).await;
        }
    }

    /// Has the SDK say where it would send a request, and how, without sending it.
    async fn ask(&self, table: &str) -> Result<Route, Fault> {
        let asked = Asked::default();
        let ended = match &self.service {
            Service::Tables(client) => {
                let call = client.describe_table().table_name(table).customize().interceptor(asked.clone());
                call.send().await.map_err(|error| fault(table, &error)).map(drop)
            }
            Service::Streams(client) => {
                let call = client.list_streams().table_name(table).customize().interceptor(asked.clone());
                call.send().await.map_err(|error| fault(table, &error)).map(drop)
            }
        };
        let found = asked.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        match (found, ended) {
            (Some((uri, authorization, components)), _) => self.route(&uri, &authorization, components),
            (None, Err(fault)) => Err(fault),
            (None, Ok(())) => Err(Fault::Fatal(format!("{table}: the SDK did not say where requests go"))),
        }
    }

    fn route(&self, uri: &str, authorization: &str, components: RuntimeComponents) -> Result<Route, Fault> {
        let unfit = |what: &str| Fault::Fatal(format!("{what} of the SDK's requests is not as expected"));
        let uri: http::Uri = uri.parse().map_err(|_| unfit("the address"))?;
        let host = uri.authority().ok_or_else(|| unfit("the host"))?.as_str().to_owned();
        let signer = Signer::like(authorization, &host, uri.path()).ok_or_else(|| unfit("the signature"))?;
        let client = components.http_client().ok_or_else(|| unfit("the HTTP client"))?;
        let timeouts = HttpConnectorSettings::builder().connect_timeout(self.connect_timeout).build();
        let connector = client.http_connector(&timeouts, &components);
        Ok(Route { uri, connector, components, signer })
    }
}

impl Failed {
    /// Whether the same request may find another answer at once.
    fn may_pass(&self, table: &str) -> bool {
        match self {
            Self::Refused(refusal) => refusal.fault(table).is_retryable(),
            Self::Fault(fault) => fault.is_retryable(),
        }
    }

    /// This as a fault about `table`.
    pub(super) fn into_fault(self, table: &str) -> Fault {
        match self {
            Self::Refused(refusal) => refusal.fault(table),
            Self::Fault(fault) => fault,
        }
    }
}

impl Refusal {
    fn fault(&self, table: &str) -> Fault {
        of_service(table, &self.meta, self.status)
    }
}

/// An answer that cannot be read leaves open what was done.
fn read<T: DeserializeOwned>(table: &str, answer: &[u8]) -> Result<T, Failed> {
    serde_json::from_slice(answer).map_err(|error| Failed::Fault(Fault::Transient(format!("{table}: answer: {error}"))))
}

/// Where requests go, over which connections, and who signs them.
#[derive(Debug)]
struct Route {
    uri: http::Uri,
    connector: SharedHttpConnector,
    components: RuntimeComponents,
    signer: Signer,
}

impl Route {
    /// One request, and the whole of its answer.
    async fn attempt(&self, target: &'static str, table: &str, body: Bytes) -> Result<Bytes, Failed> {
        let transient = |why: String| Failed::Fault(Fault::Transient(format!("{table}: {why}")));
        let request = self.request(target, body).await.map_err(|error| transient(in_one_line(&*error)))?;
        let answer = self.connector.call(request).await.map_err(|error| transient(in_one_line(&error)))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| transient(in_one_line(&*error)))?.to_bytes();
        if status == 200 { Ok(body) } else { Err(Failed::Refused(Box::new(Refusal::read(status, &body)))) }
    }

    async fn request(&self, target: &'static str, body: Bytes) -> Result<HttpRequest, BoxError> {
        let signed = self.signer.sign(&self.components, target, &body).await?;
        let mut request = http::Request::new(SdkBody::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.reserve(8);
        headers.insert(header::CONTENT_TYPE, CONTENT_TYPE);
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert("x-amz-target", HeaderValue::from_static(target));
        headers.insert("x-amz-date", signed.date);
        headers.insert(header::AUTHORIZATION, signed.authorization);
        if let Some(token) = signed.token {
            headers.insert("x-amz-security-token", token);
        }
        Ok(HttpRequest::try_from(request)?)
    }
}

/// Takes note of what a request of the SDK would be, and ends it.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<Option<(String, String, RuntimeComponents)>>>);

impl Intercept for Asked {
    fn name(&self) -> &'static str {
        "Asked"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request();
        let authorization = request.headers().get("authorization").unwrap_or_default().to_owned();
        let found = (request.uri().to_owned(), authorization, components.clone());
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(found);
        Err("only asked for".into())
    }
}
