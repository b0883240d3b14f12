//! Tests the program `tally-emulator`: its start and end, its exit codes, its control routes, and requests from boto3
//! and the `aws` command.

use tally_testkit::Process;
use tally_testkit::http::{Answer, send};
use tally_testkit::process::{command, run};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-emulator");

/// A running emulator, and the address that it has printed.
struct Running {
    process: Process,
    address: String,
}

impl Running {
    /// Starts the program on a free port.
    async fn start(flags: &[&str]) -> Self {
        let process = Process::start("emulator", command(PROGRAM).args(["--port", "0"]).args(flags));
        Self::listening(process.unwrap()).await
    }

    async fn listening(process: Process) -> Self {
        let line = process.prints("listening").await;
        let address = line.strip_prefix("listening on http://").expect("the first line says where").to_owned();
        Self { process, address }
    }
}

/// A request of a program to the right host.
async fn request(address: &str, line: &str, body: &str) -> Answer {
    let headers = format!("Host: {address}\r\nContent-Type: application/json\r\n");
    request_with(address, line, &headers, body).await
}

async fn request_with(address: &str, line: &str, headers: &str, body: &str) -> Answer {
    send(address, line, headers, body).await.expect("a whole answer")
}

#[tokio::test]
async fn sigterm_ends_it_with_0_while_a_connection_is_open() {
    let running = Running::start(&[]).await;
    let _open = TcpStream::connect(&running.address).await.unwrap();
    assert!(request(&running.address, "GET /", "").await.status == 200);
    running.process.stop().await.unwrap();
}

#[tokio::test]
async fn it_ends_with_0_even_if_nothing_can_be_logged() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = command(PROGRAM);
    let process = Process::logging_to(full, "emulator", command.args(["--port", "0", "--log", "trace"]));
    let running = Running::listening(process.unwrap()).await;
    // A request that never ends is cut off at the end, which is logged.
    let mut endless = TcpStream::connect(&running.address).await.unwrap();
    endless.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
    assert!(request(&running.address, "GET /", "").await.status == 200);
    running.process.stop().await.unwrap();
}

/// Checks that the program ends with 78 and one line with the reason.
async fn refused(flags: &[&str], words: &str) {
    let said = run(command(PROGRAM).args(flags)).await;
    assert_eq!(said.code, Some(78), "{flags:?}: {said:?}");
    assert!(said.err.contains(words) && said.out.is_empty(), "{flags:?} is answered with {said:?}");
}

#[tokio::test]
async fn a_wrong_configuration_ends_it_with_78() {
    refused(&["--dance"], "--dance").await;
    refused(&["--shards", "0"], "--shards").await;
    refused(&["--stream-retention", "1w"], "--stream-retention").await;
    refused(&["--stream-reorder", "1s"], "--stream-reorder").await;
    refused(&["--faults", "/nowhere"], "--faults /nowhere").await;
    refused(&["--policies", "/nowhere"], "--policies /nowhere").await;
    refused(&["--policies", concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/data.yaml")], "no role").await;
    refused(&["--log", "tally_emulator=shout"], "--log").await;
    refused(&["--host", "192.0.2.1", "--port", "0"], "--host 192.0.2.1").await;
    let mistaken = run(command(PROGRAM).env("TALLY_EMULATOR_SEDE", "1")).await;
    assert!(mistaken.code == Some(78) && mistaken.err.contains("did you mean TALLY_EMULATOR_SEED?"), "{mistaken:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["--port", &port], &format!("--port {port}")).await;
    assert_eq!(run(command(PROGRAM).arg("--help")).await.code, Some(0));
}

#[tokio::test]
async fn with_policies_it_prints_the_unused_grants_when_it_ends() {
    let roles = concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/roles.yaml");
    let running = Running::start(&["--policies", roles, "--control"]).await;
    let grants = request(&running.address, "GET /_control/grants", "").await;
    assert!(grants.body.contains(r#""ConsumerRole: dynamodb:PartiQLInsert on *likes""#), "{grants:?}");
    running.process.stop().await.unwrap();
    let said = running.process.printed();
    assert!(said.contains("\n  ApiRole: dynamodb:Query on *likes\n") && said.ends_with("refused: 0\n"), "{said}");
}

#[tokio::test]
async fn the_control_routes_only_answer_if_they_are_enabled() {
    let quiet = Running::start(&[]).await;
    assert!(request(&quiet.address, "GET /_control/stats", "").await.status == 404);
    let controlled = Running::start(&["--control"]).await;
    let address = &controlled.address;
    assert!(request(address, "GET /_control/stats", "").await.body.contains(r#""panics":0"#));
    let rules = r#"{"rules":[{"fault":"outage","for_ms":5}]}"#;
    assert!(request(address, "POST /_control/fault", rules).await.body.contains(r#""fault":"outage""#));
    assert!(request(address, "POST /_control/clock", r#"{"advance_ms":5}"#).await.body.contains("now_ms"));
    assert!(request(address, "POST /_control/split", r#"{"table":"none"}"#).await.status == 400);
    assert!(request(address, "POST /_control/expire", r#"{"table":"none"}"#).await.body.contains("no table none"));
    assert!(request(address, "POST /_control/dance", "{}").await.status == 404);
}

/// The tests of the guard have all kinds of such pages.
#[tokio::test]
async fn a_page_of_another_site_can_neither_send_commands_nor_read_anything() {
    let controlled = Running::start(&["--control"]).await;
    let address = &controlled.address;
    let of_a_program = "X-Amz-Target: DynamoDB_20120810.ListTables\r\nAuthorization: Credential=local\r\n";
    for (headers, status) in [
        ("Host: evil.example\r\n".to_owned(), 403),
        (format!("Host: {address}\r\nOrigin: null\r\n"), 403),
        (format!("Host: {address}\r\n"), 200),
    ] {
        for (line, more, body) in [
            ("POST /_control/clock", "Content-Type: application/json\r\n", r#"{"advance_ms":5}"#),
            ("GET /_control/stats", "", ""),
            ("POST /", of_a_program, "{}"),
        ] {
            let answer = request_with(address, line, &format!("{headers}{more}"), body).await;
            assert_eq!((answer.status, answer.body.contains("error")), (status, status != 200), "{headers}{answer:?}");
            assert!(!answer.head.to_lowercase().contains("access-control-allow"), "{answer:?}");
        }
    }
    let form = format!("Host: {address}\r\nContent-Type: text/plain\r\n");
    let posted = request_with(address, "POST /_control/clock", &form, "{}").await;
    assert!(posted.status == 415 && posted.body.contains("application/json"), "{posted:?}");
}

/// Runs the contract tests in Python, with boto3 and the `aws` command, if Python has boto3.
#[tokio::test]
#[ignore = "needs python3 with boto3; .ci/night runs it"]
async fn boto3_and_the_aws_command_work_unmodified() {
    let running = Running::start(&["--control", "--read-lag", "0ms"]).await;
    let endpoint = format!("http://{}", running.address);
    let status = std::process::Command::new("python3").args(["tests/boto3_contract.py", &endpoint]).status().unwrap();
    assert!(status.success(), "a rule of the contract is broken: {status}");
}
