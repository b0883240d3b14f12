//! The heartbeat example as a process of its own: start, readiness, signals, exit codes. Ends everything it starts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_secs(20);
const CANARY: &str = "canary-2f61";
const BEATING: [&str; 8] =
    ["--greeting", "hello", "--interval", "20ms", "--log-format", "json", "--admin-listen", "off"];

fn heartbeat(args: &[&str]) -> Command {
    heartbeat_by(&[], args)
}

/// The same, started by another program.
fn heartbeat_by(starter: &[&str], args: &[&str]) -> Command {
    let mut folder = std::env::current_exe().expect("a test knows its path");
    folder.pop();
    folder.pop();
    let path: PathBuf = folder.join("examples/heartbeat");
    assert!(path.exists(), "{} is missing: cargo build -p tally-service --example heartbeat", path.display());
    let path = path.to_str().expect("a path of text");
    let mut words = starter.iter().chain([&path]).chain(args);
    let mut command = Command::new(words.next().expect("a program"));
    let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
    tally.for_each(|(name, _)| _ = command.env_remove(name));
    command.args(words).env("TALLY_TOKEN", CANARY).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = heartbeat(args).output().expect("the example starts");
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    (status.code(), text(stdout), text(stderr))
}

/// A service under way, with its log as it appears.
struct Service {
    child: Child,
    log: Receiver<String>,
    seen: Vec<Value>,
}

impl Service {
    fn start(args: &[&str]) -> Self {
        Self::beating("20ms", args)
    }

    fn beating(interval: &str, args: &[&str]) -> Self {
        let defaults = ["--greeting", "hello", "--interval", interval, "--log-format", "json"];
        let args: Vec<&str> = defaults.into_iter().chain(args.iter().copied()).collect();
        Self::of(&mut heartbeat(&args))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the example starts");
        let (sender, log) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        std::thread::spawn(move || {
            let mut lines = stderr.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Self { child, log, seen: Vec::new() }
    }

    fn ready(args: &[&str]) -> (Self, String) {
        let args: Vec<&str> = ["--admin-listen", "127.0.0.1:0"].iter().chain(args).copied().collect();
        Self::start(&args).once_ready()
    }

    fn once_ready(self) -> (Self, String) {
        let mut service = self;
        let listening = service.until("admin listening");
        let address = listening["address"].as_str().expect("the event has the address").to_owned();
        let deadline = Instant::now() + DEADLINE;
        while get(&address, "/readyz").0 != 200 {
            assert!(Instant::now() < deadline, "not ready: {}", get(&address, "/readyz").1);
        }
        (service, address)
    }

    /// Reads the log up to the first event with this message.
    fn until(&mut self, message: &str) -> Value {
        loop {
            match self.log.recv_timeout(DEADLINE) {
                Ok(line) => {
                    assert!(!line.contains(CANARY), "a secret in the log: {line}");
                    let event: Value = serde_json::from_str(&line).expect("every line is one event");
                    self.seen.push(event.clone());
                    if event["message"] == message {
                        return event;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("no {message:?} in {:#?}", self.seen)
                }
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// The exit code, with the log read to its end.
    fn exit(mut self) -> (Option<i32>, Vec<Value>) {
        let deadline = Instant::now() + DEADLINE;
        while let Ok(line) = self.log.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push(serde_json::from_str(&line).expect("every line is one event"));
        }
        assert!(Instant::now() < deadline, "still running: {:#?}", self.seen);
        let status = self.child.wait().expect("the child is ours");
        (status.code(), std::mem::take(&mut self.seen))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Already gone unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> (u16, String) {
    let answer = ask(address, path).expect("the admin listener answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a complete answer");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// A whole answer. Where nothing listens yet, a connection may end before it, or answer nothing at all.
fn ask(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn has(log: &[Value], message: &str) -> bool {
    log.iter().any(|event| event["message"] == message)
}

#[test]
fn it_serves_its_admin_routes_and_its_own() {
    let (service, address) = Service::ready(&[]);
    assert_eq!(get(&address, "/livez"), (200, "alive\n".to_owned()));
    assert_eq!(get(&address, "/readyz").1, r#"{"ready":true,"conditions":{"running":{"state":"ready"}}}"#);
    assert_eq!(get(&address, "/greeting"), (200, "hello".to_owned()));
    assert_eq!(get(&address, "/nothing").0, 404);
    let (status, metrics) = get(&address, "/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains(r#"tally_build_info{service="tally-heartbeat",version="#), "{metrics}");
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().expect("a type has a name");
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name} has no help: {metrics}");
    }
    assert!(metrics.contains("\nprocess_resident_memory_bytes "), "{metrics}");
    service.signal("TERM");
    assert_eq!(service.exit().0, Some(0));
}

#[test]
fn each_signal_drains_what_was_sent_and_exits_0() {
    for signal in ["TERM", "INT", "HUP"] {
        // `nohup` makes what it starts ignore SIGHUP, these tests among it; this restores the default.
        let starter: &[&str] = if signal == "HUP" { &["env", "--default-signal=HUP"] } else { &[] };
        let mut service = Service::of(&mut heartbeat_by(starter, &BEATING));
        service.until("beat");
        service.signal(signal);
        let (code, log) = service.exit();
        assert_eq!(code, Some(0), "{log:#?}");
        let figure = |message: &str, field: &str| {
            let event = log.iter().find(|event| event["message"] == message);
            event.unwrap_or_else(|| panic!("no {message:?}"))[field].as_u64()
        };
        assert_eq!(figure("drained", "said"), figure("no more beats", "sent"));
        let stages: Vec<&str> = log.iter().filter_map(|event| event["message"].as_str()).collect();
        let order = ["stopping", "no more beats", "drained", "stopped"];
        let places = order.map(|message| stages.iter().position(|seen| *seen == message));
        assert!(places.is_sorted() && places[0].is_some(), "{stages:?}");
    }
}

#[test]
fn a_task_that_ends_early_fails_or_panics_exits_1_and_is_named() {
    let ends = BTreeMap::from([
        ("end-early", "task `pulse` ended early"),
        ("fail", "task `pulse` failed: the heart stopped"),
        ("panic", "task `pulse` panicked: the heart broke\nin two"),
    ]);
    for (how, message) in ends {
        let mut service = Service::start(&["--admin-listen", "off", "--misbehave", how]);
        let event = service.until(message);
        assert_eq!((&event["task"], &event["level"]), (&"pulse".into(), &"ERROR".into()));
        let (code, log) = service.exit();
        assert_eq!(code, Some(1), "{log:#?}");
        assert_eq!(log.iter().filter(|event| event["message"] == message).count(), 1, "an end is logged once");
        let drained = log.iter().find(|event| event["message"] == "drained").expect("what was sent is drained");
        let span = serde_json::json!([{"name": "task", "service": "tally-heartbeat", "task": "voice"}]);
        assert_eq!(drained["spans"], span, "an event names its own task alone");
    }
}

/// An address that was free a moment ago.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("a listener has an address").to_string()
}

/// Waits until some lines of the log were dropped, and says so by the metric.
fn until_lines_are_dropped(address: &str) {
    let deadline = Instant::now() + DEADLINE;
    let dropped = || -> Option<u64> {
        let metrics = ask(address, "/metrics").ok()?;
        metrics.lines().find_map(|line| line.strip_prefix("tally_log_dropped_lines_total "))?.parse().ok()
    };
    while dropped().is_none_or(|lines| lines < 5) {
        assert!(Instant::now() < deadline, "{address}: {:?}", dropped());
    }
}

#[test]
fn a_log_on_a_full_disk_ends_no_process() {
    for format in ["json", "pretty"] {
        let address = free_address();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("this machine has /dev/full");
        let args = ["--greeting", "hello", "--interval", "5ms", "--admin-listen", &address, "--log-format", format];
        let mut child = heartbeat(&args).stderr(full).spawn().expect("the example starts");
        until_lines_are_dropped(&address);
        let sent = Command::new("kill").arg(child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
        assert_eq!(child.wait().expect("the child is ours").code(), Some(0), "{format}");
    }
}

#[test]
fn a_reader_of_the_log_that_leaves_ends_no_process() {
    let (mut service, address) = Service::ready(&[]);
    // The thread that reads the pipe ends with its channel.
    drop(std::mem::replace(&mut service.log, channel().1));
    until_lines_are_dropped(&address);
    service.signal("TERM");
    assert_eq!(service.child.wait().expect("the child is ours").code(), Some(0));
}

#[test]
fn a_hangup_that_was_told_to_be_ignored_is_ignored() {
    let mut service = Service::of(&mut heartbeat_by(&["nohup"], &BEATING));
    service.until("beat");
    service.signal("HUP");
    service.until("beat");
    service.signal("TERM");
    assert!(!has(&service.seen, "stopping"), "{:#?}", service.seen);
    assert_eq!(service.exit().0, Some(0));
}

#[test]
fn a_job_ends_the_process_with_its_code() {
    let service = Service::start(&["--admin-listen", "off", "--misbehave", "finish-with-drift"]);
    let (code, log) = service.exit();
    assert_eq!(code, Some(1), "{log:#?}");
    assert!(has(&log, "job `audit` finished") && has(&log, "drained"), "{log:#?}");
}

#[test]
fn a_task_that_ignores_stop_is_named_and_the_exit_comes_inside_the_grace() {
    let mut service = Service::start(&["--admin-listen", "off", "--misbehave", "hang", "--shutdown-grace", "2s"]);
    service.until("beat");
    let asked = Instant::now();
    service.signal("TERM");
    service.until("task `pulse` did not stop within the grace and was aborted");
    assert_eq!(service.exit().0, Some(1));
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
}

#[test]
fn while_it_drains_it_lives_and_is_not_ready() {
    let (mut service, address) = Service::ready(&["--misbehave", "hang"]);
    service.until("beat");
    service.signal("TERM");
    let deadline = Instant::now() + DEADLINE;
    let stopping = r#"{"ready":false,"conditions":{"running":{"state":"not_ready","reason":"stopping"}}}"#;
    while get(&address, "/readyz") != (503, stopping.to_owned()) {
        assert!(Instant::now() < deadline, "{:?}", get(&address, "/readyz"));
    }
    assert_eq!(get(&address, "/livez").0, 200);
    service.signal("TERM");
    assert_eq!(service.exit().0, Some(143));
}

#[test]
fn a_format_that_is_not_known_exits_78_by_name_and_without_an_orderly_stop() {
    let (code, _, stderr) = output(&["--greeting", "hello", "--admin-listen", "off", "--misbehave", "foreign-format"]);
    assert_eq!(code, Some(78), "{stderr}");
    let named =
        "task `format` failed: the deployment is written in format 7, this build knows 2: see docs/upgrading.md";
    assert_eq!(stderr.matches(named).count(), 1, "{stderr}");
    // That the last stage finds nothing more to do while the process ends is no stop.
    assert!(!stderr.contains("no more beats") && !stderr.contains("stopping"), "{stderr}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let mut service = Service::start(&["--admin-listen", "off", "--misbehave", "hang"]);
        service.until("beat");
        service.signal("TERM");
        service.until("stopping");
        service.signal(signal);
        assert_eq!(service.exit().0, Some(code));
    }
}

#[test]
fn a_missing_setting_is_named_and_exits_78_under_check_and_at_start() {
    for args in [&["--check", "--interval", "0"][..], &["--interval", "0"]] {
        let (code, stdout, stderr) = output(args);
        assert_eq!((code, stdout.as_str()), (Some(78), ""));
        assert!(stderr.contains("--greeting (TALLY_GREETING): missing"), "{stderr}");
        assert!(stderr.contains("--interval (TALLY_INTERVAL): must be"), "{stderr}");
    }
}

#[test]
fn what_clap_refuses_exits_78_by_name_and_help_and_version_exit_0() {
    let refused = [
        (&["--colour"][..], "--colour"),
        (&["--check", "--greeting"], "--greeting"),
        (&["--greeting", ""], "--greeting"),
        (&["--greeting", "x", "--shutdown-grace", "soon"], "--shutdown-grace"),
        (&["--greeting", "x", "--admin-listen", "nowhere"], "--admin-listen"),
        (&["--greeting", "x", "--log", "=="], "--log"),
    ];
    for (args, named) in refused {
        let (code, stdout, stderr) = output(args);
        assert_eq!((code, stdout.as_str()), (Some(78), ""), "{args:?}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
    for flag in ["--help", "--version"] {
        let (code, stdout, stderr) = output(&[flag]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.contains("heartbeat") && !stdout.contains(CANARY), "{stdout}");
    }
}

#[test]
fn check_says_that_a_configuration_is_valid_and_no_secret() {
    let (code, stdout, stderr) = output(&["--check", "--greeting", "hello"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(stdout, "tally-heartbeat: the configuration is valid\n");
}

#[test]
fn an_address_in_use_is_an_error_that_names_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, log) = Service::start(&["--admin-listen", &address]).exit();
    assert_eq!(code, Some(78), "{log:#?}");
    let error =
        log.iter().find(|event| event["message"] == "cannot start").expect("an error is logged")["error"].to_string();
    assert!(error.contains(&address) && error.contains("--admin-listen (TALLY_ADMIN_LISTEN)"), "{error}");
}

#[test]
fn a_client_that_never_finishes_its_headers_is_dropped_and_holds_nobody_up() {
    let (service, address) = Service::ready(&["--shutdown-grace", "4s"]);
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();
    assert_eq!(get(&address, "/livez").0, 200);
    service.signal("TERM");
    assert_eq!(service.exit().0, Some(0));
}

#[test]
fn a_counter_is_there_from_the_start_and_a_request_names_one_host() {
    let (service, address) = Service::beating("1h", &["--admin-listen", "127.0.0.1:0"]).once_ready();
    assert!(get(&address, "/metrics").1.contains("\ntally_heartbeats_total 0\n"));
    for hosts in ["", "host: x\r\nhost: y\r\n"] {
        let mut stream = TcpStream::connect(&address).expect("the admin listener accepts");
        write!(stream, "GET /livez HTTP/1.1\r\n{hosts}\r\n").expect("the listener reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer ends");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{hosts:?}: {answer}");
    }
    service.signal("TERM");
    assert_eq!(service.exit().0, Some(0));
}
