//! The binary: it says where it listens, answers, and ends cleanly on a signal.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-emulator");

/// A running binary, killed if it still runs at the end of a test.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    /// Starts the binary on a free port and waits for its first line.
    fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, Stdio::inherit())
    }

    fn start_with(flags: &[&str], stderr: Stdio) -> Self {
        Self::spawn(Command::new(PROGRAM).args(["--port", "0"]).args(flags).stderr(stderr))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim_end().strip_prefix("listening on http://").expect("the first line says where").to_owned();
        Self { child, address }
    }
}

impl Running {
    /// Sends SIGTERM, and says what it ended with.
    async fn terminate(self) -> Option<i32> {
        self.end_by("-TERM").await
    }

    async fn end_by(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let ended = tokio::task::spawn_blocking(move || self.child.wait());
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("it ends soon").unwrap().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A request of a program that knows where it sends a command.
async fn request(address: &str, method: &str, path: &str, body: &str) -> String {
    let headers = format!("Host: {address}\r\nContent-Type: application/json\r\n");
    request_with(address, method, path, &headers, body).await
}

async fn request_with(address: &str, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let text =
        format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    connection.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn it_ends_with_zero_on_sigterm_while_a_connection_is_open() {
    let running = Running::start(&[]);
    let _open = TcpStream::connect(&running.address).await.unwrap();
    assert!(request(&running.address, "GET", "/", "").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(running.terminate().await, Some(0));
}

#[tokio::test]
async fn it_ends_with_zero_when_nothing_can_be_logged() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let running = Running::start_with(&["--log", "trace"], full.into());
    // A request that never ends is cut off in the end, which is worth a line.
    let mut endless = TcpStream::connect(&running.address).await.unwrap();
    endless.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
    assert!(request(&running.address, "GET", "/", "").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(running.terminate().await, Some(0));
}

/// Ends with 78 and says why in one line.
fn refused(flags: &[&str], words: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_tally-emulator")).args(flags).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{flags:?}: {said}");
    assert!(said.contains(words), "{flags:?} is answered with {said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_wrong_configuration_ends_it_with_78() {
    refused(&["--dance"], "--dance");
    refused(&["--shards", "0"], "--shards");
    refused(&["--stream-retention", "1d"], "--stream-retention");
    refused(&["--stream-reorder", "1s"], "--stream-reorder");
    refused(&["--faults", "/nowhere"], "--faults /nowhere");
    refused(&["--policies", "/nowhere"], "--policies /nowhere");
    refused(&["--policies", concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/data.yaml")], "no role");
    refused(&["--log", "tally_emulator=shout"], "--log");
    refused(&["--host", "192.0.2.1", "--port", "0"], "--host 192.0.2.1");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["--port", &port], &format!("--port {port}"));
    let help = Command::new(env!("CARGO_BIN_EXE_tally-emulator")).arg("--help").output().unwrap();
    assert_eq!(help.status.code(), Some(0));
}

#[tokio::test]
async fn under_policies_it_says_at_its_end_what_was_granted_without_need() {
    let roles = concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/roles.yaml");
    let mut running = Running::start(&["--policies", roles, "--control"]);
    let grants = request(&running.address, "GET", "/_control/grants", "").await;
    assert!(grants.contains(r#""ConsumerRole: dynamodb:PartiQLInsert on *likes""#), "{grants}");
    let mut out = running.child.stdout.take().expect("it is read by this test");
    assert_eq!(running.terminate().await, Some(0));
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert!(said.contains("\n  ApiRole: dynamodb:Query on *likes\n") && said.ends_with("refused: 0\n"), "{said}");
}

#[tokio::test]
async fn the_control_routes_answer_only_when_they_were_asked_for() {
    let quiet = Running::start(&[]);
    assert!(request(&quiet.address, "GET", "/_control/stats", "").await.starts_with("HTTP/1.1 404 "));
    let controlled = Running::start(&["--control"]);
    let address = &controlled.address;
    assert!(request(address, "GET", "/_control/stats", "").await.contains(r#""panics":0"#));
    let rules = r#"{"rules":[{"fault":"outage","for_ms":5}]}"#;
    assert!(request(address, "POST", "/_control/fault", rules).await.contains(r#""fault":"outage""#));
    assert!(request(address, "POST", "/_control/clock", r#"{"advance_ms":5}"#).await.contains("now_ms"));
    assert!(request(address, "POST", "/_control/split", r#"{"table":"none"}"#).await.starts_with("HTTP/1.1 400 "));
    assert!(request(address, "POST", "/_control/expire", r#"{"table":"none"}"#).await.contains("no table none"));
    assert!(request(address, "POST", "/_control/dance", "{}").await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn a_page_of_another_site_can_neither_command_nor_read() {
    let controlled = Running::start(&["--control"]);
    let address = &controlled.address;
    let json = "Content-Type: application/json\r\n";
    let clock = r#"{"advance_ms":5}"#;
    for (headers, status) in [
        ("Host: evil.example\r\n".to_owned(), 403),
        (format!("Host: {address}\r\nOrigin: http://evil.example\r\n"), 403),
        (format!("Host: {address}\r\nOrigin: null\r\n"), 403),
        (format!("Host: {address}\r\nHost: evil.example\r\n"), 403),
        (format!("Host: {address}\r\nOrigin: http://{address}\r\n"), 200),
        (format!("Host: localhost:{}\r\n", address.rsplit(':').next().unwrap()), 200),
    ] {
        let expected = format!("HTTP/1.1 {status} ");
        let posted = request_with(address, "POST", "/_control/clock", &format!("{headers}{json}"), clock).await;
        assert!(posted.starts_with(&expected), "{headers}{posted}");
        let read = request_with(address, "GET", "/_control/stats", &headers, "").await;
        assert!(read.starts_with(&expected) && read.contains("panics") == (status == 200), "{headers}{read}");
        assert!(!read.to_lowercase().contains("access-control-allow"), "{read}");
    }
    let form = format!("Host: {address}\r\nContent-Type: text/plain\r\n");
    let posted = request_with(address, "POST", "/_control/clock", &form, clock).await;
    assert!(posted.starts_with("HTTP/1.1 415 ") && posted.contains("application/json"), "{posted}");
}

#[tokio::test]
async fn a_page_of_another_site_gets_nothing_of_the_tables_either() {
    let running = Running::start(&[]);
    let address = &running.address;
    let program = "X-Amz-Target: DynamoDB_20120810.ListTables\r\nAuthorization: AWS4-HMAC-SHA256 Credential=local\r\n\
                   Content-Type: application/x-amz-json-1.0\r\n";
    for (headers, status) in [
        ("Host: evil.example\r\n".to_owned(), 403),
        ("Host: evil.example\r\nOrigin: http://evil.example\r\n".to_owned(), 403),
        (format!("Host: {address}\r\nOrigin: http://evil.example\r\n"), 403),
        (format!("Host: {address}\r\nOrigin: null\r\n"), 403),
        (format!("Host: {address}\r\n"), 200),
    ] {
        let answer = request_with(address, "POST", "/", &format!("{headers}{program}"), "{}").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}{answer}");
        assert_eq!(answer.contains("TableNames"), status == 200, "{headers}{answer}");
    }
}

#[tokio::test]
async fn it_ends_with_zero_when_its_terminal_is_gone() {
    // `nohup` makes what it starts ignore SIGHUP, these tests among it; this restores the default.
    let running = Running::spawn(Command::new("env").args(["--default-signal=HUP", PROGRAM, "--port", "0"]));
    assert_eq!(running.end_by("-HUP").await, Some(0));
}
