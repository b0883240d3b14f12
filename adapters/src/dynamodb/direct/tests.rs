use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::ConnectorError;
use serde_json::{Value, json};
use tally_core::time::UnixMillis;

use super::*;
use crate::dynamodb::Connection;

/// A service that says what it is told to, and nothing at all once it has said everything.
#[derive(Clone, Debug)]
pub(in crate::dynamodb) struct Told {
    answers: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
    asked: Arc<Mutex<Vec<Heard>>>,
}

/// One request: its headers by name, and its body.
pub(in crate::dynamodb) type Heard = (Vec<(String, String)>, Value);

impl Told {
    pub(in crate::dynamodb) fn new(answers: &[(u16, &'static str)]) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.iter().copied().collect())), asked: Arc::default() }
    }

    /// The requests so far.
    pub(in crate::dynamodb) fn asked(&self) -> Vec<Heard> {
        self.asked.lock().unwrap().clone()
    }
}

impl HttpClient for Told {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl aws_smithy_runtime_api::client::http::HttpConnector for Told {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let headers = request.headers().iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        self.asked.lock().unwrap().push((headers, body));
        HttpConnectorFuture::ready(match self.answers.lock().unwrap().pop_front() {
            Some((status, body)) => Ok(HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body))),
            None => Err(ConnectorError::io("connection reset".into())),
        })
    }
}

/// What became of one call of a client that tries three times, and what the service heard.
async fn call(answers: &[(u16, &'static str)]) -> (Result<Updated, Failed>, Vec<Heard>) {
    let told = Told::new(answers);
    let connection = Connection::in_process(&Settings::local(""), told.clone(), UnixMillis(1_700_000_000_000));
    let request = json!({ "TableName": "t" });
    let answer = connection.direct.call(UPDATE_ITEM, "t", &request).await;
    (answer, told.asked())
}

#[tokio::test(start_paused = true)]
async fn the_sdk_sends_nothing_of_its_own_and_a_call_is_one_signed_request() {
    let (answer, asked) = call(&[(200, r#"{"Attributes":{"likes":{"N":"3"}}}"#)]).await;
    let attributes = answer.unwrap().attributes;
    assert_eq!(attributes.get("likes"), Some(&aws_sdk_dynamodb::types::AttributeValue::N("3".into())));
    let [(headers, body)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(*body, json!({ "TableName": "t" }));
    let header = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    assert_eq!(header("x-amz-target"), Some("DynamoDB_20120810.UpdateItem"));
    assert_eq!(header("x-amz-date"), Some("20231114T221320Z"));
    let credential = "AWS4-HMAC-SHA256 Credential=local/20231114/us-east-1/dynamodb/aws4_request, ";
    assert!(header("authorization").unwrap().starts_with(credential), "{headers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_and_a_refusal_is_not() {
    const DONE: (u16, &str) = (200, "{}");
    const BUSY: (u16, &str) =
        (400, r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"m"}"#);
    const DOWN: (u16, &str) = (503, "<html>");
    const HALF: (u16, &str) = (200, r#"{"Attributes":{"#);
    for (answers, tries, class) in [
        (&[BUSY, DOWN, DONE][..], 3, "done"),
        (&[BUSY, BUSY, BUSY, DONE], 3, "throttled"),
        (&[DOWN, DOWN, DOWN, DONE], 3, "transient"),
        (&[], 3, "transient"),
        (&[HALF, DONE], 1, "transient"),
        (&[(400, r#"{"__type":"x#ValidationException","Message":"m"}"#), DONE], 1, "poison"),
        (&[(400, r#"{"__type":"AccessDeniedException:http://x"}"#), DONE], 1, "fatal"),
        (&[(400, r#"{"__type":"x#ConditionalCheckFailedException","Item":{"n":{"N":"1"}}}"#), DONE], 1, "condition"),
    ] {
        let (answer, asked) = call(answers).await;
        let became = match answer {
            Ok(_) => "done",
            Err(Failed::Refused(refusal)) if refusal.is_condition() => {
                assert!(refusal.item.contains_key("n"));
                "condition"
            }
            Err(failed) => failed.into_fault("t").class(),
        };
        assert_eq!((became, asked.len()), (class, tries), "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_silent_is_given_up_after_the_time_of_an_attempt() {
    #[derive(Clone, Debug)]
    struct Silent;
    impl HttpClient for Silent {
        fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
            SharedHttpConnector::new(self.clone())
        }
    }
    impl aws_smithy_runtime_api::client::http::HttpConnector for Silent {
        fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
            HttpConnectorFuture::new(std::future::pending())
        }
    }
    let settings = Settings { attempts: 1, ..Settings::local("") };
    let connection = Connection::in_process(&settings, Silent, UnixMillis(0));
    let began = tokio::time::Instant::now();
    let answer: Result<Updated, _> = connection.direct.call(UPDATE_ITEM, "t", &json!({})).await;
    assert_eq!(answer.unwrap_err().into_fault("t").class(), "transient");
    assert_eq!(began.elapsed().as_secs(), settings.attempt_timeout.as_secs());
}
