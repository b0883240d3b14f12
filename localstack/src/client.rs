//! The API as any client sees it: JSON over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 16 << 20;

/// Asks one listener; its connections stay open between requests.
pub(crate) struct Client {
    address: SocketAddr,
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { address, http: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector) }
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(http::Request::get(self.url(path)), path, Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = http::Request::post(self.url(path)).header(http::header::CONTENT_TYPE, "application/json");
        self.ask(request, path, body.to_string().into()).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn ask(&self, request: http::request::Builder, path: &str, body: Bytes) -> anyhow::Result<Value> {
        let request = request.body(Full::new(body)).context("not a request")?;
        let exchange = async {
            let (head, body) = self.http.request(request).await?.into_parts();
            let body = Limited::new(body, MOST_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((head.status, body.to_bytes()))
        };
        let answered = timeout(PATIENCE, exchange).await.context("no answer in time").flatten();
        let (status, body) = answered.with_context(|| format!("cannot ask {} for {path}", self.address))?;
        ensure!(status.is_success(), "{path} answered {status}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).with_context(|| format!("{path} answered no JSON"))
    }
}
