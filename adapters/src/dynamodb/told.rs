//! A service for tests of what goes over the wire: it says what it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;

/// A service that says what it is told to, and breaks the connection once it has said everything.
#[derive(Clone, Debug)]
pub(super) struct Told {
    answers: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Told {
    pub(super) fn new(answers: &[(u16, &'static str)]) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.iter().copied().collect())), asked: Arc::default() }
    }

    /// The bodies of the requests so far.
    pub(super) fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }
}

impl HttpClient for Told {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Told {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.asked.lock().unwrap().push(serde_json::from_slice(request.body().bytes().unwrap()).unwrap());
        HttpConnectorFuture::ready(match self.answers.lock().unwrap().pop_front() {
            Some((status, body)) => Ok(HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body))),
            None => Err(ConnectorError::io("connection reset".into())),
        })
    }
}
