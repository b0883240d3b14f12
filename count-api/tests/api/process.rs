//! Tests the program `tally-count-api` as a process: how it starts, when it is not ready, what it refuses, and how it
//! ends.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally_adapters::dynamodb;
use tally_core::ids::ShardCount;
use tally_emulator::Policies;
use tally_service::Host;
use tally_testkit::{Process, Store, process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{counter, eventually, get, plant, post_id, set_up};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-count-api");
const LISTENING: [&str; 6] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-format", "json"];

/// Tables behind a socket, with everything that a consumer and a streamer create.
pub(crate) struct Tables {
    store: Store,
    url: String,
    _serving: JoinSet<()>,
}

impl Tables {
    pub(crate) async fn start() -> Self {
        Self::under(None).await
    }

    /// The same where each role may do only what `policies` allow.
    async fn under(policies: Option<Policies>) -> Self {
        let store = Store::in_real_time(tally_emulator::Config { policies, ..Default::default() }).await;
        set_up(&store.connection).await;
        dynamodb::Checkpoints::new(&store.connection).config(Some(ShardCount::DEFAULT)).await.unwrap();
        let (url, _serving) = store.serve().await;
        Self { store, url, _serving }
    }

    pub(crate) async fn plant(&self, post: &str, likes: i64) {
        plant(&self.store.connection, &post_id(post), counter(likes, 1)).await;
    }
}

pub(crate) fn command(args: &[&str]) -> Command {
    surrounded(process::command(PROGRAM), args)
}

/// Adds the variables that every process has here.
fn surrounded(mut command: Command, args: &[&str]) -> Command {
    command.args(args).env("AWS_REGION", "us-east-1");
    command.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "canary-aws-secret");
    command
}

/// Starts the program over `tables` with what `surround` sets. Returns how it ends and what it logs.
async fn ended(tables: &Tables, surround: impl FnOnce(&mut Command)) -> (Option<i32>, String) {
    let mut command = command(&["--listen", "127.0.0.1:0", "--admin-listen", "off"]);
    command.env("AWS_ENDPOINT_URL", &tables.url);
    surround(&mut command);
    let done = process::run(&mut command).await;
    (done.code, done.err)
}

/// Starts the program over `tables`, on free ports. Returns it and its public address once it is ready.
pub(crate) async fn start(tables: &Tables, args: &[&str]) -> (Process, SocketAddr) {
    ready(spawn(tables, command(&[&LISTENING, args].concat()))).await
}

fn spawn(tables: &Tables, mut command: Command) -> Process {
    command.env("AWS_ENDPOINT_URL", &tables.url);
    Process::start("api", &mut command).unwrap()
}

async fn ready(process: Process) -> (Process, SocketAddr) {
    process.ready().await.unwrap();
    let address = process.public().expect("it has said where it listens");
    (process, address)
}

/// Returns every line of its log about a request or a connection.
pub(crate) fn accesses(process: &Process) -> Vec<Value> {
    let mut lines = process.events();
    lines.retain(|line| line["target"] == "tally_count_api::access");
    lines
}

/// Returns its metrics.
pub(crate) async fn metrics(process: &Process) -> String {
    process.get("/metrics").await.unwrap().body
}

async fn is_ready(process: &Process) -> bool {
    process.get("/readyz").await.unwrap().status == 200
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_serves_and_ends_cleanly_at_a_signal() {
    let tables = Tables::start().await;
    tables.plant("p", 3).await;
    let (process, address) = start(&tables, &[]).await;
    assert_eq!(get(address, "/v1/posts/p/likes").await.json()["likes"], 3);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(process.get(path).await.unwrap().status, 200, "{path}");
        assert_eq!(get(address, path).await.status, 404, "{path} is not for the public");
    }
    for expected in [
        r#"tally_http_requests_seconds_count{route="/v1/posts/{post_id}/likes",method="GET",status="200"} 1"#,
        r#"tally_reads_total{layer="table"} 1"#,
        "tally_staleness_seconds",
        "tally_open_gaps 0",
    ] {
        eventually(expected, async || metrics(&process).await.contains(expected)).await;
    }
    process.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_shape_is_refused_by_name_at_the_start() {
    let tables = Tables::start().await;
    tables.store.call("DeleteTable", json!({"TableName": "like_counts"})).await;
    let other = json!({"TableName": "like_counts", "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}]});
    tables.store.call("CreateTable", other).await;
    let (code, said) = ended(&tables, |_| ()).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("table like_counts") && said.contains("post_id"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_while_the_counts_table_is_gone_or_another_one_until_that_is_adopted() {
    let tables = Tables::start().await;
    tables.plant("p", 3).await;
    let (process, address) = start(&tables, &[]).await;
    tables.store.call("DeleteTable", json!({"TableName": "like_counts"})).await;
    let asked = AtomicUsize::new(0);
    eventually("it is not ready", async || {
        let post = asked.fetch_add(1, Ordering::Relaxed);
        assert_eq!(get(address, &format!("/v1/posts/asked-{post}/likes")).await.status, 503);
        !is_ready(&process).await
    })
    .await;
    let said = process.get("/readyz").await.unwrap().body;
    assert!(said.contains("counts") && said.contains("like_counts"), "{said}");

    let connection = &tables.store.connection;
    dynamodb::ensure_tables(connection).await.unwrap();
    eventually("it answers, and says that nothing is known", async || {
        let answer = get(address, "/v1/posts/asked-1/likes").await;
        answer.status == 200 && answer.json()["exact"] == false
    })
    .await;
    assert!(!is_ready(&process).await, "it is another table");
    let checkpoints = dynamodb::Checkpoints::new(connection);
    let seen = checkpoints.seen_tables().await.unwrap();
    assert_eq!(checkpoints.adopt_tables(&seen, Host::new("test").clock().now()).await, Ok(true));
    eventually("it is ready", async || is_ready(&process).await).await;
    assert_eq!(get(address, "/v1/posts/asked-2/likes").await.json()["exact"], false, "not before a recount");
    process.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_while_it_may_not_read_the_counts_table() {
    let granted = [("*", "likes*"), ("*", "checkpoints"), ("*", "recounts"), ("DescribeTable", "like_counts")];
    let statements = granted.map(|(action, table)| {
        let resource = format!("arn:aws:dynamodb:*:*:table/{table}");
        json!({"Effect": "Allow", "Action": format!("dynamodb:{action}"), "Resource": resource})
    });
    let policies = json!([{"PolicyName": "tables", "PolicyDocument": {"Statement": statements}}]);
    let role = json!({"Type": "AWS::IAM::Role", "Properties": {"Policies": policies}});
    let policies = Policies::of(&json!({"Resources": {"Denied": role}})).unwrap();
    let tables = Tables::under(Some(policies)).await;
    let mut command = command(&LISTENING);
    command.env("AWS_ACCESS_KEY_ID", "Denied");
    let (process, address) = ready(spawn(&tables, command)).await;
    eventually("it is not ready", async || {
        assert_eq!(get(address, "/v1/posts/p/likes").await.status, 503);
        !is_ready(&process).await
    })
    .await;
    let said = process.get("/readyz").await.unwrap().body;
    assert!(said.contains("counts") && said.contains("AccessDenied"), "{said}");
    process.stop().await.unwrap();
}

/// A metadata service of an instance that answers every request with 403, or accepts it and does not answer.
async fn instance(answers: bool) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, mut answering) = (listener.local_addr().unwrap(), JoinSet::new());
    answering.spawn(async move {
        let mut silent = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 4096]).await;
            if !answers {
                silent.push(connection);
                continue;
            }
            let forbidden = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = connection.write_all(forbidden).await;
        }
    });
    (address, answering)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_region_and_no_credentials_are_said_by_name_in_one_line_where_the_instance_has_none() {
    let tables = Tables::start().await;
    let (forbidding, _answering) = instance(true).await;
    for instance in ["http://127.0.0.1:1".to_owned(), format!("http://{forbidding}")] {
        for missing in ["AWS_REGION", "AWS_ACCESS_KEY_ID"] {
            let surround = |command: &mut Command| {
                command.env("HOME", "/nowhere").env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &instance);
                for name in ["AWS_EC2_METADATA_DISABLED", "AWS_DEFAULT_REGION", missing] {
                    command.env_remove(name);
                }
                if missing == "AWS_ACCESS_KEY_ID" {
                    command.env_remove("AWS_SECRET_ACCESS_KEY");
                }
            };
            let (code, said) = ended(&tables, surround).await;
            assert_eq!(code, Some(78), "{said}");
            // Lines about asking an instance are left out.
            let aloud: Vec<&str> = said.lines().filter(|line| !line.contains(" INFO ")).collect();
            assert!(aloud.len() == 1 && aloud[0].contains(&format!("{missing}: missing")), "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn with_few_open_files_fewer_connections_are_taken_aloud_and_the_probes_are_answered() {
    let tables = Tables::start().await;
    let mut limited = process::command("sh");
    limited.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\"", PROGRAM]);
    let (process, address) = ready(spawn(&tables, surrounded(limited, &LISTENING))).await;
    let message =
        "fewer connections are taken than --connections says: this process may not open more files (ulimit -n)";
    let said = process.event(message).unwrap();
    assert_eq!((&said["connections"], &said["asked"]), (&json!(64), &json!(10_000)));
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(process.get(path).await.unwrap().status, 200, "{path}");
    }
    drop(idle);
    process.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_does_not_answer_is_waited_for() {
    let tables = Tables::start().await;
    let (silent, _silent) = instance(false).await;
    let mut command = command(&["--listen", "127.0.0.1:0", "--admin-listen", "off", "--log-format", "json"]);
    command.env("HOME", "/nowhere").env_remove("AWS_EC2_METADATA_DISABLED");
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{silent}"));
    let process = spawn(&tables, command);
    let said = process.logs("waiting for dependency").await;
    assert!(said["dependency"] == "tables" && said["error"].as_str().unwrap().contains("AWS credentials"), "{said}");
    process.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_says_whether_writes_are_taken() {
    let tables = Tables::start().await;
    for (opened, taken) in [(&[][..], false), (&["--open-writes"][..], true)] {
        let process = spawn(&tables, command(&[&LISTENING[..], &["--brokers", "127.0.0.1:1"], opened].concat()));
        assert_eq!(process.logs("listening").await["writes"], taken, "{opened:?}");
        process.stop().await.unwrap();
    }
}
