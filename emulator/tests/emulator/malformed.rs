//! Whatever arrives, the answer has DynamoDB's format and the server goes on.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};
use tally_testkit::http::send;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::raw::{call, table};

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
        Self::with(Config::default()).await
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
        assert!(self.head.contains("x-amzn-requestid: ") && self.head.contains("x-amz-crc32: "), "{}", self.head);
        let name = self.body["__type"].as_str().expect("a refusal names its type");
        assert!(name.starts_with("com.amazon"), "{name}");
        assert!(self.body["message"].is_string() || self.body["Message"].is_string());
        name.rsplit('#').next().unwrap()
    }
}

#[tokio::test]
async fn every_answer_states_the_emulators_time_once() {
    let epoch = Some(std::time::UNIX_EPOCH + Duration::from_secs(951_782_300));
    let server = Server::with(Config { epoch, ..Config::default() }).await;
    for operation in ["ListTables", "Dance"] {
        let answer = server.send(&format!("DynamoDB_20120810.{operation}"), b"{}").await;
        assert_eq!(answer.head.matches("\r\ndate: ").count(), 1, "{}", answer.head);
        assert!(answer.head.contains("\r\ndate: mon, 28 feb 2000 23:5"), "{}", answer.head);
    }
}

/// What is wrong with a request, its headers if they are not those of PutItem, its body, and the expected exception.
const MALFORMED: [(&str, &str, &[u8], &str); 14] = [
    ("no authorization", "X-Amz-Target: DynamoDB_20120810.PutItem\r\n", b"{}", "MissingAuthenticationTokenException"),
    ("no target", "Authorization: any\r\n", b"{}", "UnknownOperationException"),
    (
        "unknown operation",
        "X-Amz-Target: DynamoDB_20120810.Dance\r\nAuthorization: any\r\n",
        b"{}",
        "UnknownOperationException",
    ),
    (
        "unknown version",
        "X-Amz-Target: DynamoDB_20111205.PutItem\r\nAuthorization: any\r\n",
        b"{}",
        "UnknownOperationException",
    ),
    (
        "a stream operation of the other API",
        "X-Amz-Target: DynamoDB_20120810.GetRecords\r\nAuthorization: any\r\n",
        b"{}",
        "UnknownOperationException",
    ),
    ("empty body", "", b"", "SerializationException"),
    ("cut off", "", br#"{"TableName": "ro"#, "SerializationException"),
    ("not JSON", "", b"hello", "SerializationException"),
    ("not UTF-8", "", b"{\"TableName\": \"\xFF\xFE\"}", "SerializationException"),
    ("a list", "", b"[]", "SerializationException"),
    ("a name that is a number", "", br#"{"TableName": 5, "Item": {}}"#, "SerializationException"),
    ("no parameters", "", b"{}", "ValidationException"),
    (
        "a number that is no number",
        "",
        br#"{"TableName": "rows", "Item": {"p": {"S": "x"}, "s": {"N": "x"}}}"#,
        "ValidationException",
    ),
    ("no such table", "", br#"{"TableName": "none", "Item": {"p": {"S": "x"}}}"#, "ResourceNotFoundException"),
];

#[tokio::test]
async fn every_malformed_request_is_refused_in_dynamodbs_format() {
    let server = Server::start().await;
    for (what, headers, body, name) in MALFORMED {
        let answer = match headers {
            "" => server.send("DynamoDB_20120810.PutItem", body).await,
            headers => server.request(headers, body).await,
        };
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

#[tokio::test]
async fn endless_nesting_is_refused() {
    let server = Server::start().await;
    let deep = format!(r#"{{"TableName":"rows","Item":{{"p":{}"#, r#"{"L":["#.repeat(100_000));
    let answer = server.send("DynamoDB_20120810.PutItem", deep.as_bytes()).await;
    assert_eq!(answer.status, 400);
    let deep = format!("{}{}", "(".repeat(50_000), ")".repeat(50_000));
    let request = json!({"TableName": "rows", "Key": {"p": {"S": "a"}, "s": {"N": "1"}}, "ConditionExpression": deep});
    let answer = server.send("DynamoDB_20120810.DeleteItem", request.to_string().as_bytes()).await;
    assert_eq!((answer.status, answer.refusal()), (400, "ValidationException"));
    server.lives().await;
}

/// One valid request of each kind.
fn valid(arn: &str) -> Vec<(&'static str, Value)> {
    let key = json!({"p": {"S": "a"}, "s": {"N": "1"}});
    let item = json!({"p": {"S": "a"}, "s": {"N": "1"}, "m": {"M": {"l": {"L": [{"BOOL": true}, {"NULL": true}]}}}, "ns": {"NS": ["1", "2.5"]}});
    vec![
        (
            "DynamoDB_20120810.PutItem",
            json!({"TableName": "rows", "Item": item, "ConditionExpression": "attribute_not_exists(#p) OR s < :s",
            "ExpressionAttributeNames": {"#p": "p"}, "ExpressionAttributeValues": {":s": {"N": "5"}}, "ReturnValues": "ALL_OLD"}),
        ),
        (
            "DynamoDB_20120810.UpdateItem",
            json!({"TableName": "rows", "Key": key, "UpdateExpression": "SET a = if_not_exists(a, :one) + :one ADD ns :set REMOVE b",
            "ExpressionAttributeValues": {":one": {"N": "1"}, ":set": {"NS": ["3"]}}, "ReturnValues": "UPDATED_NEW"}),
        ),
        (
            "DynamoDB_20120810.GetItem",
            json!({"TableName": "rows", "Key": key, "ConsistentRead": true, "ProjectionExpression": "m.l[0], ns"}),
        ),
        (
            "DynamoDB_20120810.Query",
            json!({"TableName": "rows", "KeyConditionExpression": "p = :p AND s BETWEEN :a AND :b", "Limit": 5,
            "ExpressionAttributeValues": {":p": {"S": "a"}, ":a": {"N": "0"}, ":b": {"N": "9"}}}),
        ),
        (
            "DynamoDB_20120810.Scan",
            json!({"TableName": "rows", "Segment": 0, "TotalSegments": 3, "FilterExpression": "size(ns) > :n",
            "ExpressionAttributeValues": {":n": {"N": "0"}}}),
        ),
        ("DynamoDB_20120810.BatchWriteItem", json!({"RequestItems": {"rows": [{"PutRequest": {"Item": item}}]}})),
        ("DynamoDB_20120810.BatchGetItem", json!({"RequestItems": {"rows": {"Keys": [key]}}})),
        (
            "DynamoDB_20120810.TransactWriteItems",
            json!({"ClientRequestToken": "t", "TransactItems": [{"Put": {"TableName": "rows", "Item": item}}]}),
        ),
        ("DynamoDB_20120810.TransactGetItems", json!({"TransactItems": [{"Get": {"TableName": "rows", "Key": key}}]})),
        ("DynamoDB_20120810.DescribeTable", json!({"TableName": "rows"})),
        ("DynamoDBStreams_20120810.DescribeStream", json!({"StreamArn": arn, "Limit": 10})),
        ("DynamoDBStreams_20120810.GetRecords", json!({"ShardIterator": format!("{arn}|1|c2hhcmQ=")})),
    ]
}

/// Breaks a request: changes, inserts, deletes or cuts bytes, or replaces a part of its JSON.
fn mutate(body: &Value, rng: &mut StdRng) -> Vec<u8> {
    let mut value = body.clone();
    if rng.random_bool(0.5) {
        replace_somewhere(&mut value, rng);
        return value.to_string().into_bytes();
    }
    let mut bytes = value.to_string().into_bytes();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..4) {
            0 => bytes[at] = rng.random(),
            1 => bytes.insert(at, b"{}[]\",:0-eE.\\"[rng.random_range(0..13)]),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

fn replace_somewhere(value: &mut Value, rng: &mut StdRng) {
    let children = match value {
        Value::Object(members) => members.len(),
        Value::Array(elements) => elements.len(),
        _ => 0,
    };
    if children > 0 && rng.random_bool(0.8) {
        let nth = rng.random_range(0..children);
        match value {
            Value::Object(members) => {
                members.values_mut().nth(nth).into_iter().for_each(|child| replace_somewhere(child, rng));
            }
            Value::Array(elements) => replace_somewhere(&mut elements[nth], rng),
            _ => {}
        }
        return;
    }
    let others = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("\u{0}"),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!({"S": 5}),
        json!({"N": "1e999"}),
        json!({"SS": []}),
        json!({"S": "a", "N": "1"}),
        json!("x".repeat(3000)),
        json!(":::((("),
    ];
    *value = others[rng.random_range(0..others.len())].clone();
}

#[tokio::test]
async fn a_thousand_mutations_are_answered_or_refused_and_none_ends_the_server() {
    let server = Server::start().await;
    let described = server.send("DynamoDB_20120810.DescribeTable", br#"{"TableName":"rows"}"#).await;
    let requests = valid(described.body["Table"]["LatestStreamArn"].as_str().unwrap());
    for (target, body) in &requests[..11] {
        let answer = server.send(target, body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200, "{target} is valid before it is broken: {}", answer.body);
    }
    let mut rng = StdRng::seed_from_u64(2024);
    let mut refused = 0;
    for _ in 0..1000 {
        let (target, body) = &requests[rng.random_range(0..requests.len())];
        let body = mutate(body, &mut rng);
        let answer = server.send(target, &body).await;
        if answer.status != 200 {
            assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(&body));
            answer.refusal();
            refused += 1;
        }
    }
    assert!(refused > 500, "most mutations break a request: {refused}");
    server.lives().await;
}
