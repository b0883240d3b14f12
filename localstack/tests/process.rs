//! The one command as a process of its own: it runs, verifies, is stopped, and refuses what it cannot run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::time::Instant;

/// Long enough for a debug build on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(180);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally-localstack"));
    let settings = std::env::vars_os().map(|(name, _)| name);
    settings.filter(|name| name.to_string_lossy().starts_with("TALLY_")).for_each(|name| _ = command.env_remove(name));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const ANY_PORT: [&str; 8] = ["--kafka-port", "0", "--dynamodb-port", "0", "--api-port", "0", "--admin-listen", "off"];

fn refused(args: &[&str]) -> String {
    let Output { status, stderr, .. } = command(args).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(78), "{said}");
    said
}

/// A stack under way; ended when it goes out of scope.
struct Stack {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Stack {
    fn start(args: &[&str]) -> Self {
        Self::start_on(&ANY_PORT, args)
    }

    fn start_on(ports: &[&str], args: &[&str]) -> Self {
        Self::spawn(command(ports).args(args).stderr(Stdio::inherit()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines, said: Vec::new() }
    }

    /// The first line that contains `text`.
    fn until(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("never said {text:?} ({error}): {:#?}", self.said));
            self.said.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends SIGINT, as Ctrl-C does; how long it took to end, and its exit code.
    fn interrupt(&mut self) -> (Duration, Option<i32>) {
        let asked = Instant::now();
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let code = self.child.wait().unwrap().code();
        (asked.elapsed(), code)
    }

    /// Everything said until it ended by itself, and its exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let deadline = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.said.push(line);
        }
        assert!(Instant::now() < deadline, "still running: {:#?}", self.said);
        let code = self.child.wait().unwrap().code();
        (self.said.join("\n"), code)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Already gone unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Posts JSON; the status line and what follows it.
fn post(url: &str, path: &str, body: &str) -> String {
    let address = address_in(url);
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    exchange(address, &format!("{head}content-length: {length}\r\n\r\n{body}"))
}

fn address_in(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches('/')
}

fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn after_a_short_load_every_row_and_every_count_is_what_was_said() {
    let stack = Stack::start(&["--duration", "3s", "--verify", "--rate", "200", "--posts", "5", "--users", "40"]);
    let (said, code) = stack.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("differences  0"), "{said}");
    let sets = ["likes", "retweets", "replies", "uses"].map(|set| (set, "rows"));
    for (counter, rows) in sets.into_iter().chain([("views", "cells")]) {
        let compared = said.lines().find_map(|line| line.trim_start().strip_prefix(counter)?.split_once(rows));
        let there: Option<u64> = compared.and_then(|(number, _)| number.trim().parse().ok());
        assert!(there.is_some_and(|there| there > 0), "{counter}: {said}");
    }
}

#[test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
fn a_count_put_wrong_by_hand_is_found() {
    let mut stack = Stack::start(&["--duration", "20s", "--verify", "--rate", "200", "--posts", "1", "--users", "40"]);
    let page = stack.until("page ").split_whitespace().last().unwrap().to_owned();
    stack.until("events/s");
    let deadline = Instant::now() + Duration::from_secs(15);
    let action = r#"{"action":"inject_drift","post_id":"post-1","by":3}"#;
    loop {
        let answer = post(&page, "/local/actions", action);
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < deadline, "never had a counter: {answer}");
    }
    let (said, code) = stack.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("post-1#0:") && said.contains("post-1:") && !said.contains("user-"), "{said}");
}

#[test]
fn no_page_of_another_site_reads_or_likes() {
    let mut stack = Stack::start(&["--no-load"]);
    let page = stack.until("page ").split_whitespace().last().unwrap().to_owned();
    stack.until("ready");
    let address = address_in(&page);
    let ask = |line: &str, host: &str, origin: &str| {
        exchange(address, &format!("{line} HTTP/1.1\r\nhost: {host}\r\n{origin}connection: close\r\n\r\n"))
    };
    for line in ["GET /", "GET /local/state", "GET /local/events", "GET /v1/posts/p/likes", "PUT /v1/posts/p/likes/u"] {
        // A name that a name server points here, and a page that knows the address.
        for (host, origin) in [("evil.example:8080", ""), (address, "origin: http://evil.example\r\n")] {
            let answer = ask(line, host, origin);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{line} {host} {origin}: {answer}");
        }
    }
    let own = format!("origin: http://{address}\r\n");
    assert!(ask("GET /local/state", address, "").starts_with("HTTP/1.1 200 "));
    assert!(ask("PUT /v1/posts/p/likes/u", address, &own).starts_with("HTTP/1.1 202 "));
}

#[test]
fn every_metric_of_the_four_services_has_its_help_and_counters_begin_at_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap().to_string();
    drop(taken);
    let mut stack = Stack::start_on(&ANY_PORT[..6], &["--no-load", "--admin-listen", &admin]);
    stack.until("ready");
    let metrics = exchange(&admin, &format!("GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n"));
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let helpless: Vec<&str> =
        types.filter(|kind| !metrics.contains(&format!("# HELP {} ", kind.split(' ').next().unwrap()))).collect();
    assert_eq!(helpless, [""; 0], "{metrics}");
    for line in [
        "tally_consumer_alarms_total{alarm=\"log_truncated\"} 0",
        "tally_stream_gaps_total{kind=\"trimmed\"} 0",
        "tally_recount_keys_total{outcome=\"repaired\"} 0",
        "tally_writes_total{action=\"like\",outcome=\"acknowledged\"} 0",
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}

#[test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
fn chaos_says_what_it_does_and_the_end_what_was_done() {
    let stack = Stack::start(&["--chaos", "--seed", "7", "--duration", "12s", "--rate", "200", "--posts", "5"]);
    let (said, code) = stack.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("   chaos: "), "{said}");
    assert!(said.contains("\n  on purpose ") && said.contains("\n  requests ") && said.contains("throttle "), "{said}");
}

#[test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
fn what_was_done_is_said_at_the_end_that_a_person_makes_too() {
    let mut stack = Stack::start(&["--chaos", "--seed", "7", "--rate", "200", "--posts", "5"]);
    stack.until("   chaos: ");
    assert_eq!(stack.interrupt().1, Some(0));
    let (said, _) = stack.end();
    assert!(said.contains("what went wrong on purpose") && said.contains("\n  on purpose "), "{said}");
}

#[test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
fn a_format_that_is_not_known_ends_the_whole_stack_by_name() {
    let mut stack = Stack::spawn(command(&ANY_PORT).arg("--no-load"));
    let mut said = stack.child.stderr.take().unwrap();
    let store = stack.until("  DynamoDB ").split_whitespace().last().unwrap().to_owned();
    stack.until("ready");
    let address = address_in(&store);
    let body = r##"{"TableName":"checkpoints","Key":{"id":{"S":"config"}},"UpdateExpression":"SET #f=:f",
        "ExpressionAttributeNames":{"#f":"format"},"ExpressionAttributeValues":{":f":{"N":"7"}}}"##;
    let head = "x-amz-target: DynamoDB_20120810.UpdateItem\r\nauthorization: test\r\nconnection: close\r\n";
    let length = body.len();
    let request = format!("POST / HTTP/1.1\r\nhost: {address}\r\n{head}content-length: {length}\r\n\r\n{body}");
    let answer = exchange(address, &request);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (_, code) = stack.end();
    let mut log = String::new();
    said.read_to_string(&mut log).unwrap();
    assert_eq!(code, Some(78), "{log}");
    assert!(log.contains("the deployment is written in format 7, this build knows 2: see docs/upgrading.md"), "{log}");
}

#[test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
fn ctrl_c_ends_it_within_five_seconds_whatever_it_is_doing() {
    let moments: [(&[&str], &str); 4] = [
        (&[], "load "),
        (&[], "events/s"),
        (&["--duration", "2s", "--verify"], "waiting until every change"),
        (&["--chaos", "--seed", "7"], "events/s"),
    ];
    for (args, moment) in moments {
        let mut stack = Stack::start(args);
        stack.until(moment);
        let (took, code) = stack.interrupt();
        assert!(took < Duration::from_secs(5) && code == Some(0), "{moment}: {code:?} after {took:?}");
    }
}

#[test]
fn a_port_in_use_is_named_with_the_flag_that_changes_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = refused(&["--kafka-port", "0", "--dynamodb-port", &port, "--api-port", "0", "--admin-listen", "off"]);
    assert!(said.contains("--dynamodb-port (TALLY_DYNAMODB_PORT)") && said.contains("in use"), "{said}");
}

#[test]
fn what_cannot_be_run_is_refused_with_78() {
    for (args, named) in [
        (&["--rate", "fast"][..], "--rate"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--verify"], "--duration"),
        (&["--unlike-ratio", "2"], "--unlike-ratio"),
    ] {
        let args: Vec<&str> = ANY_PORT.iter().chain(args).copied().collect();
        let said = refused(&args);
        assert!(said.contains(named), "{args:?}: {said}");
    }
}
