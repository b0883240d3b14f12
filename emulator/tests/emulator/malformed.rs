//! Tests that the emulator answers malformed requests with an error in DynamoDB's format, and goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};
use tally_testkit::http::send;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::raw::{call, kind, table};

/// A running server. Dropping it ends the server.
pub(crate) struct Server {
    pub(crate) emulator: Emulator,
    address: std::net::SocketAddr,
    _tasks: JoinSet<std::io::Result<()>>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Value,
}

impl Server {
    async fn start() -> Self {
        let epoch = Some(std::time::UNIX_EPOCH + Duration::from_secs(951_781_800));
        Self::with(Config { epoch, ..Config::default() }).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let emulator = Emulator::new(config);
        let mut tasks = JoinSet::new();
        let served = emulator.clone();
        tasks.spawn(async move { served.serve(listener, std::future::pending()).await });
        let server = Self { emulator, address, _tasks: tasks };
        call(&server.emulator, "CreateTable", table("rows", &[("p", "S"), ("s", "N")])).await.unwrap();
        server
    }

    async fn send(&self, target: &str, body: &[u8]) -> Answer {
        self.request(&format!("X-Amz-Target: {target}\r\nAuthorization: any\r\n"), body).await
    }

    /// Sends one request on its own connection.
    pub(crate) async fn request(&self, headers: &str, body: &[u8]) -> Answer {
        let headers = format!("Host: localhost\r\n{headers}");
        let sent = send(self.address, "POST /", &headers, body);
        let answer = tokio::time::timeout(Duration::from_secs(30), sent).await.expect("every request is answered");
        let answer = answer.expect("an answer has a head and a body");
        let body = serde_json::from_str(&answer.body).expect("a body is JSON");
        Answer { status: answer.status, head: answer.head.to_lowercase(), body }
    }

    async fn lives(&self) {
        let answer = self.send("DynamoDB_20120810.ListTables", b"{}").await;
        assert_eq!((answer.status, &answer.body["TableNames"][0]), (200, &json!("rows")));
        assert_eq!(self.emulator.stats().panics, 0);
    }
}

impl Answer {
    /// The exception's name, after a check of the answer's format.
    fn refusal(&self) -> &str {
        assert!(self.head.contains("content-type: application/x-amz-json-1.0"), "{}", self.head);
        assert_eq!(self.head.matches("\r\ndate: ").count(), 1, "{}", self.head);
        assert!(self.head.contains("\r\ndate: mon, 28 feb 2000 23:5"), "the emulator's time: {}", self.head);
        assert!(self.head.contains("x-amzn-requestid: ") && self.head.contains("x-amz-crc32: "), "{}", self.head);
        assert!(self.body["__type"].as_str().is_some_and(|name| name.starts_with("com.amazon")), "{}", self.body);
        assert!(self.body["message"].is_string() || self.body["Message"].is_string());
        kind(&self.body)
    }
}

#[tokio::test]
async fn every_malformed_request_is_refused_in_dynamodbs_format() {
    let server = Server::start().await;
    for (headers, name) in [
        ("X-Amz-Target: DynamoDB_20120810.PutItem\r\n", "MissingAuthenticationTokenException"),
        ("Authorization: any\r\n", "UnknownOperationException"),
        ("X-Amz-Target: DynamoDB_20120810.Dance\r\nAuthorization: any\r\n", "UnknownOperationException"),
        ("X-Amz-Target: DynamoDB_20111205.PutItem\r\nAuthorization: any\r\n", "UnknownOperationException"),
        ("X-Amz-Target: DynamoDB_20120810.GetRecords\r\nAuthorization: any\r\n", "UnknownOperationException"),
    ] {
        let answer = server.request(headers, b"{}").await;
        assert_eq!((answer.status, answer.refusal()), (400, name), "{headers}: {}", answer.body);
    }
    let bodies: [(&str, &[u8], &str); 9] = [
        ("empty", b"", "SerializationException"),
        ("cut off", br#"{"TableName": "ro"#, "SerializationException"),
        ("not JSON", b"hello", "SerializationException"),
        ("not UTF-8", b"{\"TableName\": \"\xFF\xFE\"}", "SerializationException"),
        ("a list", b"[]", "SerializationException"),
        ("a name that is a number", br#"{"TableName": 5, "Item": {}}"#, "SerializationException"),
        ("no parameters", b"{}", "ValidationException"),
        ("no number", br#"{"TableName": "rows", "Item": {"p": {"S": "x"}, "s": {"N": "x"}}}"#, "ValidationException"),
        ("no such table", br#"{"TableName": "none", "Item": {"p": {"S": "x"}}}"#, "ResourceNotFoundException"),
    ];
    for (what, body, name) in bodies {
        let answer = server.send("DynamoDB_20120810.PutItem", body).await;
        assert_eq!((answer.status, answer.refusal()), (400, name), "{what}: {}", answer.body);
    }
    server.lives().await;
}

#[tokio::test]
async fn a_body_over_sixteen_megabytes_is_too_large() {
    let server = Server::start().await;
    let answer = server.send("DynamoDB_20120810.PutItem", &vec![b' '; 20 * 1024 * 1024]).await;
    assert_eq!((answer.status, answer.refusal()), (413, "RequestEntityTooLargeException"));
    server.lives().await;
}
