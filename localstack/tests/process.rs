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
        let mut child = command(&ANY_PORT).args(args).stderr(Stdio::inherit()).spawn().unwrap();
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
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
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
}

#[test]
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
fn ctrl_c_ends_it_within_five_seconds_whatever_it_is_doing() {
    let moments: [(&[&str], &str); 4] = [
        (&[], "load "),
        (&[], "events/s"),
        (&["--duration", "2s", "--verify"], "waiting until every stream shard"),
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
