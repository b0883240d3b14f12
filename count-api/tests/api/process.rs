//! Runs the binary: how it starts, what it refuses, how it ends.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally_adapters::dynamodb;
use tally_core::ids::ShardCount;
use tally_emulator::Policies;
use tally_service::Host;
use tally_testkit::process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::engines::Tables;
use crate::harness::{eventually, get};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-count-api");
const LISTENING: [&str; 6] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-format", "json"];

/// The program, running.
pub(crate) struct Process {
    process: tally_testkit::Process,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
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

/// Starts the program over `tables` with these arguments and what `surround` sets. Returns how it ends and what it
/// logs.
async fn ended(tables: &Tables, args: &[&str], surround: impl FnOnce(&mut Command)) -> (Option<i32>, String) {
    let mut command = command(&[&["--listen", "127.0.0.1:0", "--admin-listen", "off"], args].concat());
    command.env("AWS_ENDPOINT_URL", format!("http://{}", tables.address));
    surround(&mut command);
    let done = process::run(&mut command).await;
    (done.code, done.err)
}

impl Process {
    /// Starts the program over `tables`, on free ports, and waits until it is ready.
    pub(crate) async fn start(tables: &Tables, args: &[&str]) -> Self {
        Self::launch(tables, args).ready().await
    }

    /// The same without waiting.
    pub(crate) fn launch(tables: &Tables, args: &[&str]) -> Self {
        Self::spawn(tables, command(&[&LISTENING, args].concat()))
    }

    /// The same with at most `files` open files.
    fn limited(tables: &Tables, files: u32) -> Self {
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        let mut limited = process::command("sh");
        limited.args(["-c", &script, PROGRAM]);
        Self::spawn(tables, surrounded(limited, &LISTENING))
    }

    fn spawn(tables: &Tables, mut command: Command) -> Self {
        command.env("AWS_ENDPOINT_URL", format!("http://{}", tables.address));
        let process = tally_testkit::Process::start("api", &mut command).unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { process, address: nowhere, admin: nowhere }
    }

    pub(crate) async fn ready(mut self) -> Self {
        self.process.ready().await.unwrap();
        let address = |message: &str| self.said(message).unwrap()["address"].as_str().unwrap().parse().unwrap();
        (self.address, self.admin) = (address("listening"), address("admin listening"));
        self
    }

    /// Returns every line of the log so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.process.log().lines().map(str::to_owned).collect()
    }

    /// Returns every line about a request or a connection.
    pub(crate) fn accesses(&self) -> Vec<Value> {
        let (log, mut lines) = (self.process.log(), Vec::new());
        // The last line may not be complete yet.
        for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            lines.push(serde_json::from_str(line).expect("a line is one JSON object"));
        }
        lines.retain(|line: &Value| line["target"] == "tally_count_api::access");
        lines
    }

    pub(crate) fn said(&self, message: &str) -> Option<Value> {
        self.process.event(message)
    }

    /// Returns its metrics.
    pub(crate) async fn metrics(&self) -> String {
        self.process.get("/metrics").await.unwrap().body
    }

    /// Waits until it ends by itself, and returns its exit code.
    pub(crate) async fn code(&self) -> Option<i32> {
        self.process.code().await
    }

    /// Asks it to stop, and returns its exit code.
    pub(crate) async fn end(&mut self) -> Option<i32> {
        self.process.signal(process::Signal::TERM).unwrap();
        self.code().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_serves_and_ends_cleanly_at_a_signal() {
    let tables = Tables::start().await;
    tables.plant("p", 3).await;
    let mut process = Process::start(&tables, &[]).await;
    assert_eq!(get(process.address, "/v1/posts/p/likes").await.json()["likes"], 3);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(process.admin, path).await.status, 200, "{path}");
        assert_eq!(get(process.address, path).await.status, 404, "{path} is not for the public");
    }
    for expected in [
        r#"tally_http_requests_seconds_count{route="/v1/posts/{post_id}/likes",method="GET",status="200"} 1"#,
        r#"tally_reads_total{layer="table"} 1"#,
        "tally_staleness_seconds",
        "tally_open_gaps 0",
    ] {
        eventually(expected, async || process.metrics().await.contains(expected)).await;
    }
    assert_eq!(process.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_shape_is_refused_by_name_at_the_start() {
    let tables = Tables::start().await;
    tables.call("DeleteTable", r#"{"TableName":"like_counts"}"#).await;
    let other = r#"{"TableName":"like_counts","BillingMode":"PAY_PER_REQUEST",
        "KeySchema":[{"AttributeName":"id","KeyType":"HASH"}],
        "AttributeDefinitions":[{"AttributeName":"id","AttributeType":"S"}]}"#;
    tables.call("CreateTable", other).await;
    let (code, said) = ended(&tables, &[], |_| ()).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("table like_counts") && said.contains("post_id"), "{said}");
}

#[tokio::test]
async fn bad_settings_and_variables_are_named_and_checked_without_a_connection() {
    let check = async |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = command(&[&["--check"], args].concat());
        let said = process::run(command.envs(variables.iter().copied())).await;
        (said.code, said.out + &said.err)
    };
    assert_eq!(check(&[], &[]).await.0, Some(0));
    assert_eq!(check(&["--brokers", "b:9092", "--redis", "redis://:canary@r:1"], &[]).await.0, Some(0));
    for args in [
        &["--no-such-flag"][..],
        &["--listen", "x"],
        &["--redis", "r:6379"],
        &["--redis", "redis://"],
        &["--redis", "redis://canary:99999"],
        &["--topic", "li kes", "--brokers", "b:9092"],
        &["--listen", "127.0.0.1:9090"],
        &["--listen", "127.0.0.1:99999"],
        &["--key", "random"],
        &["--local-ttl", "100"],
        &["--write-token-file", "/etc/hostname"],
        &["--read-token-file", "/nowhere"],
    ] {
        let (code, said) = check(args, &[]).await;
        assert_eq!(code, Some(78), "{args:?}");
        assert!(said.contains(args[0]) && !said.contains("canary"), "{said}");
    }
    for (name, value) in [
        ("AWS_REGION", ""),
        ("AWS_ENDPOINT_URL", "canary"),
        ("AWS_ENDPOINT_URL", "http://canary:99999"),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("TALLY_LISTENN", "canary"),
    ] {
        let (code, said) = check(&[], &[(name, value)]).await;
        assert_eq!(code, Some(78), "{name}={value}: {said}");
        assert!(said.contains(name) && !said.contains("canary") && said.lines().count() == 1, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_while_the_counts_table_is_gone_or_another_one_until_that_is_adopted() {
    let tables = Tables::start().await;
    tables.plant("p", 3).await;
    let mut process = Process::start(&tables, &[]).await;
    tables.call("DeleteTable", r#"{"TableName":"like_counts"}"#).await;
    let asked = AtomicUsize::new(0);
    eventually("it is not ready", async || {
        let post = asked.fetch_add(1, Ordering::Relaxed);
        assert_eq!(get(process.address, &format!("/v1/posts/asked-{post}/likes")).await.status, 503);
        get(process.admin, "/readyz").await.status == 503
    })
    .await;
    let said = String::from_utf8(get(process.admin, "/readyz").await.body.to_vec()).unwrap();
    assert!(said.contains("counts") && said.contains("like_counts"), "{said}");

    let connection = tables.connection().await;
    dynamodb::ensure_tables(&connection).await.unwrap();
    eventually("it answers, and says that nothing is known", async || {
        let answer = get(process.address, "/v1/posts/asked-1/likes").await;
        answer.status == 200 && answer.json()["exact"] == false
    })
    .await;
    assert_eq!(get(process.admin, "/readyz").await.status, 503, "it is another table");
    let checkpoints = dynamodb::Checkpoints::new(&connection);
    let seen = checkpoints.seen_tables().await.unwrap();
    assert_eq!(checkpoints.adopt_tables(&seen, Host::new("test").clock().now()).await, Ok(true));
    eventually("it is ready", async || get(process.admin, "/readyz").await.status == 200).await;
    assert_eq!(get(process.address, "/v1/posts/asked-2/likes").await.json()["exact"], false, "not before a recount");
    assert_eq!(process.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_while_it_may_not_read_the_counts_table() {
    let role = |grants: &[(&str, &str)]| {
        let grant = |(action, table): &(&str, &str)| {
            let resource = format!("arn:aws:dynamodb:*:*:table/{table}");
            json!({"Effect": "Allow", "Action": format!("dynamodb:{action}"), "Resource": resource})
        };
        let statements: Vec<Value> = grants.iter().map(grant).collect();
        let policies = json!([{"PolicyName": "tables", "PolicyDocument": {"Statement": statements}}]);
        json!({"Type": "AWS::IAM::Role", "Properties": {"Policies": policies}})
    };
    let denied = [("*", "likes*"), ("*", "checkpoints"), ("*", "recounts"), ("DescribeTable", "like_counts")];
    let roles = json!({"Resources": {"local": role(&[("*", "*")]), "Denied": role(&denied)}});
    let tables = Tables::under(Policies::of(&roles).unwrap()).await;
    let mut command = command(&LISTENING);
    command.env("AWS_ACCESS_KEY_ID", "Denied");
    let mut process = Process::spawn(&tables, command).ready().await;
    eventually("it is not ready", async || {
        assert_eq!(get(process.address, "/v1/posts/p/likes").await.status, 503);
        get(process.admin, "/readyz").await.status == 503
    })
    .await;
    let said = String::from_utf8(get(process.admin, "/readyz").await.body.to_vec()).unwrap();
    assert!(said.contains("counts") && said.contains("AccessDenied"), "{said}");
    assert_eq!(process.end().await, Some(0));
}

/// A metadata service of an instance that answers every request with 403, or accepts it and does not answer.
async fn instance(answers: bool) -> (SocketAddr, JoinSet<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
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
async fn no_region_and_no_credentials_are_said_by_name_in_one_line_also_where_the_instance_has_none() {
    let tables = Tables::start().await;
    let (forbidding, _answering) = instance(true).await;
    let instances = ["http://127.0.0.1:1".to_owned(), format!("http://{forbidding}")];
    let [none, forbids] = instances.each_ref().map(|instance| (Some(instance), &[][..]));
    // Without the instance it cannot be known either, before the first request.
    for (instance, args) in [(None, &[][..]), (None, &["--check"]), none, forbids] {
        for missing in ["AWS_REGION", "AWS_ACCESS_KEY_ID"] {
            let surround = |command: &mut Command| {
                command.env("HOME", "/nowhere").env_remove("AWS_DEFAULT_REGION").env_remove(missing);
                match instance {
                    None => command.env("AWS_EC2_METADATA_DISABLED", "true"),
                    Some(instance) => {
                        command.env_remove("AWS_EC2_METADATA_DISABLED");
                        command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance)
                    }
                };
                if missing == "AWS_ACCESS_KEY_ID" {
                    command.env_remove("AWS_SECRET_ACCESS_KEY");
                }
            };
            let (code, said) = ended(&tables, args, surround).await;
            assert_eq!(code, Some(78), "{said}");
            // Lines about asking an instance are left out.
            let aloud = said.lines().filter(|line| instance.is_none() || !line.contains(" INFO "));
            let aloud: Vec<&str> = aloud.collect();
            assert!(aloud.len() == 1 && aloud[0].contains(&format!("{missing}: missing")), "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: kills, stops or starves processes"]
async fn with_few_open_files_fewer_connections_are_taken_aloud_and_the_probes_are_answered() {
    let tables = Tables::start().await;
    let mut process = Process::limited(&tables, 128).ready().await;
    let said = process
        .said("fewer connections are taken than --connections says: this process may not open more files (ulimit -n)");
    assert_eq!(
        (&said.as_ref().unwrap()["connections"], &said.as_ref().unwrap()["asked"]),
        (&64.into(), &10_000.into())
    );
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(tokio::net::TcpStream::connect(process.address).await.unwrap());
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(process.admin, path).await.status, 200, "{path}");
    }
    drop(idle);
    assert_eq!(process.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_shards_than_the_deployments_is_refused_and_both_are_named() {
    let tables = Tables::deployed(ShardCount::new(8).ok()).await;
    let (code, said) = ended(&tables, &["--shards", "16"], |_| ()).await;
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("--shards is 16") && said.contains("created with 8"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_does_not_answer_is_waited_for() {
    let tables = Tables::start().await;
    let (silent, _silent) = instance(false).await;
    let mut command = command(&["--listen", "127.0.0.1:0", "--admin-listen", "off", "--log-format", "json"]);
    command.env("HOME", "/nowhere").env_remove("AWS_EC2_METADATA_DISABLED");
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{silent}"));
    let mut process = Process::spawn(&tables, command);
    eventually("it says what it waits for", async || process.said("waiting for dependency").is_some()).await;
    let said = process.said("waiting for dependency").unwrap();
    assert!(said["dependency"] == "tables" && said["error"].as_str().unwrap().contains("AWS credentials"), "{said}");
    assert_eq!(process.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_says_whether_writes_are_taken() {
    let tables = Tables::start().await;
    for (opened, taken) in [(&[][..], false), (&["--open-writes"][..], true)] {
        let mut process = Process::launch(&tables, &[&["--brokers", "127.0.0.1:1"], opened].concat());
        eventually("it listens", async || process.said("listening").is_some()).await;
        assert_eq!(process.said("listening").unwrap()["writes"], taken, "{opened:?}");
        assert_eq!(process.end().await, Some(0));
    }
}
