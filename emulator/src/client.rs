//! Requests to the emulator without sockets, from the SDK or as plain JSON, so that runs under paused time are deterministic.

use std::fmt;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
    http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http::{Request, Response, header};

use crate::emulator::{Emulator, Lost};

impl Emulator {
    /// This emulator as an HTTP client for the AWS SDK. A client configured with it may use any region, credentials and
    /// endpoint.
    pub fn http_client(&self) -> SharedHttpClient {
        SharedHttpClient::new(InProcess { emulator: self.clone(), read_timeout: None })
    }

    /// As [`http_client`](Self::http_client), but each request goes to `pass`, which may record or change it, and forwards
    /// it to the connector.
    pub fn http_client_through<P>(&self, pass: P) -> SharedHttpClient
    where
        P: Fn(HttpRequest, &SharedHttpConnector) -> HttpConnectorFuture + Clone + Send + Sync + 'static,
    {
        let emulator = self.http_client();
        http_client_fn(move |settings, components| {
            let far = emulator.http_connector(settings, components);
            SharedHttpConnector::new(Through { far, pass: pass.clone() })
        })
    }

    /// Sends one request without an SDK.
    pub async fn send(&self, operation: &str, body: impl Into<Bytes>) -> Result<Response<Bytes>, Lost> {
        let api = match operation {
            "ListStreams" | "DescribeStream" | "GetShardIterator" | "GetRecords" => "DynamoDBStreams",
            _ => "DynamoDB",
        };
        let request = Request::post("http://localhost/")
            .header("x-amz-target", format!("{api}_20120810.{operation}"))
            .header(header::AUTHORIZATION, "any");
        self.handle(request.body(body.into()).expect("an operation's name is a header value")).await
    }
}

#[derive(Clone, Debug)]
struct InProcess {
    emulator: Emulator,
    read_timeout: Option<Duration>,
}

impl HttpClient for InProcess {
    fn http_connector(&self, settings: &HttpConnectorSettings, _components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Self { emulator: self.emulator.clone(), read_timeout: settings.read_timeout() })
    }
}

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let this = self.clone();
        HttpConnectorFuture::new(async move {
            let exchange = this.exchange(request);
            match this.read_timeout {
                None => exchange.await,
                Some(limit) => match tokio::time::timeout(limit, exchange).await {
                    Ok(outcome) => outcome,
                    Err(elapsed) => Err(ConnectorError::timeout(elapsed.into())),
                },
            }
        })
    }
}

/// A connector that calls `pass` for each request.
struct Through<P> {
    far: SharedHttpConnector,
    pass: P,
}

impl<P> fmt::Debug for Through<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.far.fmt(f)
    }
}

impl<P> HttpConnector for Through<P>
where
    P: Fn(HttpRequest, &SharedHttpConnector) -> HttpConnectorFuture + Send + Sync,
{
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        (self.pass)(request, &self.far)
    }
}

impl InProcess {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let user = |error: &'static str| ConnectorError::user(error.into());
        let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
        let (head, body) = request.into_parts();
        let body =
            body.bytes().map(Bytes::copy_from_slice).ok_or_else(|| user("a streaming body is no DynamoDB request"))?;
        match self.emulator.handle(Request::from_parts(head, body)).await {
            Ok(response) => response
                .map(SdkBody::from)
                .try_into()
                .map_err(|_| user("the emulator's answer has headers the SDK cannot take")),
            Err(lost @ Lost::Closed) => Err(ConnectorError::io(lost.into())),
            Err(lost @ Lost::Silent) => Err(ConnectorError::timeout(lost.into())),
        }
    }
}
