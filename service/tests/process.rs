//! Tests what every process on `tally_service` does, by running the heartbeat example: start, readiness, the admin
//! listener, signals, exit codes. Every process is ended again.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tally_testkit::http::{exchange, get, send};
use tally_testkit::process::{Done, Signal, command, run};
use tally_testkit::{Process, eventually};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

const CANARY: &str = "canary-2f61";
const BEATING: [&str; 8] =
    ["--greeting", "hello", "--interval", "20ms", "--log-format", "json", "--admin-listen", "off"];

fn heartbeat(args: &[&str]) -> Command {
    heartbeat_by(&[], args)
}

/// The same program, started by another one.
fn heartbeat_by(starter: &[&str], args: &[&str]) -> Command {
    let mut folder = std::env::current_exe().expect("a test knows its path");
    folder.pop();
    folder.pop();
    let path: PathBuf = folder.join("examples/heartbeat");
    assert!(path.exists(), "{} is missing: cargo build -p tally-service --example heartbeat", path.display());
    let path = path.to_str().expect("a path of text");
    let mut words = starter.iter().chain([&path]).chain(args);
    let mut command = command(words.next().expect("a program"));
    command.args(words).env("TALLY_TOKEN", CANARY);
    command
}

async fn output(args: &[&str]) -> Done {
    run(&mut heartbeat(args)).await
}

fn start(command: &mut Command) -> Process {
    Process::start("heartbeat", command).expect("the example starts")
}

/// Starts a heartbeat, waits until it is ready, and returns the address of its admin listener.
async fn ready(args: &[&str]) -> (Process, String) {
    let service = start(heartbeat(&BEATING[..6]).args(["--admin-listen", "127.0.0.1:0"]).args(args));
    service.ready().await.expect("it is ready");
    let address = service.logs("admin listening").await["address"].as_str().expect("an address").to_owned();
    (service, address)
}

/// Starts a heartbeat without an admin listener.
fn alone(args: &[&str]) -> Process {
    start(heartbeat(&BEATING).args(args))
}

/// Waits for the end, and returns the exit code and the whole log.
async fn exit(service: Process) -> (Option<i32>, Vec<Value>) {
    let (code, log) = (service.code().await, service.log());
    assert!(!log.contains(CANARY), "a secret in the log: {log}");
    (code, log.lines().map(|line| serde_json::from_str(line).expect("every line is one event")).collect())
}

async fn answer(address: &str, path: &str) -> (u16, String) {
    let answer = get(address, path).await.expect("the admin listener answers");
    (answer.status, answer.body)
}

fn has(log: &[Value], message: &str) -> bool {
    log.iter().any(|event| event["message"] == message)
}

#[tokio::test]
async fn a_process_serves_the_admin_routes_and_its_own() {
    let (service, address) = ready(&[]).await;
    assert_eq!(answer(&address, "/livez").await, (200, "alive\n".to_owned()));
    assert_eq!(answer(&address, "/readyz").await.1, r#"{"ready":true,"conditions":{"running":{"state":"ready"}}}"#);
    assert_eq!(answer(&address, "/greeting").await, (200, "hello".to_owned()));
    assert_eq!(answer(&address, "/nothing").await.0, 404);
    let (status, metrics) = answer(&address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains(r#"tally_build_info{service="tally-heartbeat",version="#), "{metrics}");
    assert!(metrics.contains("\nprocess_resident_memory_bytes "), "{metrics}");
    assert_eq!(metrics.matches("# HELP process_").count(), 7, "{metrics}");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_log_level_can_be_changed_at_run_time_but_not_by_a_web_page() {
    let (service, address) = ready(&[]).await;
    let put = async |level: &str, headers: &str| {
        let headers = format!("host: 127.0.0.1\r\n{headers}");
        let answer = send(&address, "PUT /log-level", &headers, level).await.expect("an answer");
        (answer.status, answer.body)
    };
    let beats = || service.events().iter().filter(|event| event["message"] == "beat").count();
    // Waits for 50 more beats, according to the metric.
    let count = async || -> u64 {
        let metrics = answer(&address, "/metrics").await.1;
        metrics.lines().find_map(|line| line.strip_prefix("tally_heartbeats_total ")).unwrap().parse().unwrap()
    };
    let more = async || {
        let before = count().await;
        eventually("it beats on", async || count().await >= before + 50).await;
    };
    assert_eq!(answer(&address, "/log-level").await, (200, "info\n".to_owned()));
    eventually("beats are logged", async || beats() > 0).await;
    assert_eq!(put("error,heartbeat=warn", "").await, (200, "error,heartbeat=warn\n".to_owned()));
    assert_eq!(service.logs("changing the log level").await["to"], "error,heartbeat=warn");
    more().await;
    let before = beats();
    more().await;
    assert_eq!(beats(), before, "beats are of no interest now");
    assert_eq!(put("==", "").await.0, 400);
    let (code, why) = put("inof", "").await;
    assert!(code == 400 && why.contains("`inof` is no level"), "{code} {why}");
    assert_eq!(put("heartbeat=debug, info", "").await.0, 400, "` info` would be a target");
    let missing = "not a log level: the body is empty: send a level, such as info\n";
    assert_eq!(put(" \n", "").await, (400, missing.to_owned()));
    assert_eq!(put("trace", "origin: http://x\r\n").await.0, 403);
    assert_eq!(answer(&address, "/log-level").await.1, "error,heartbeat=warn\n");
    assert_eq!(put(" info\n", "").await, (200, "info\n".to_owned()));
    eventually("beats are logged again", async || beats() > before).await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn each_signal_drains_and_exits_with_0() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        // `nohup` makes what it starts, including these tests, ignore SIGHUP; this restores the default.
        let starter: &[&str] = if signal == Signal::HUP { &["env", "--default-signal=HUP"] } else { &[] };
        let service = start(&mut heartbeat_by(starter, &BEATING));
        service.logs("beat").await;
        service.signal(signal).unwrap();
        let (code, log) = exit(service).await;
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

#[tokio::test]
async fn a_task_that_ends_early_fails_or_panics_is_named_and_the_exit_code_is_1() {
    let ends = BTreeMap::from([
        ("end-early", "task `pulse` ended early"),
        ("fail", "task `pulse` failed: the heart stopped"),
        ("panic", "task `pulse` panicked: the heart broke\nin two"),
    ]);
    for (how, message) in ends {
        let service = alone(&["--misbehave", how]);
        let event = service.logs(message).await;
        assert_eq!((&event["task"], &event["level"]), (&"pulse".into(), &"ERROR".into()));
        let (code, log) = exit(service).await;
        assert_eq!(code, Some(1), "{log:#?}");
        assert_eq!(log.iter().filter(|event| event["message"] == message).count(), 1, "an end is logged once");
        let drained = log.iter().find(|event| event["message"] == "drained").expect("what was sent is drained");
        let span = serde_json::json!([{"name": "task", "service": "tally-heartbeat", "task": "voice"}]);
        assert_eq!(drained["spans"], span, "an event names its own task alone");
    }
}

#[tokio::test]
async fn a_full_disk_under_the_log_or_a_closed_pipe_does_not_end_the_process() {
    for (format, is_pipe) in [("json", false), ("pretty", false), ("json", true)] {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("a listener has an address").to_string();
        drop(free);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("this machine has /dev/full");
        let log = if is_pipe { Stdio::piped() } else { Stdio::from(full) };
        let args = ["--greeting", "hello", "--interval", "5ms", "--admin-listen", &address, "--log-format", format];
        let service = Process::logging_to(log, "heartbeat", &mut heartbeat(&args)).unwrap();
        eventually("it is up", async || get(&address, "/readyz").await.is_some()).await;
        drop(service.child().stderr.take());
        let dropped = async || -> Option<u64> {
            let metrics = get(&address, "/metrics").await?.body;
            metrics.lines().find_map(|line| line.strip_prefix("tally_log_dropped_lines_total "))?.parse().ok()
        };
        eventually("lines are dropped", async || dropped().await.is_some_and(|lines| lines >= 5)).await;
        service.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_process_started_by_nohup_ignores_hangups() {
    let service = start(&mut heartbeat_by(&["nohup"], &BEATING));
    service.logs("beat").await;
    service.signal(Signal::HUP).unwrap();
    let beats = || service.events().iter().filter(|event| event["message"] == "beat").count();
    let before = beats();
    eventually("it beats on", async || beats() > before).await;
    assert!(service.event("stopping").is_none(), "{}", service.log());
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_ends_the_process_with_its_exit_code() {
    let service = alone(&["--misbehave", "finish-with-drift"]);
    let (code, log) = exit(service).await;
    assert_eq!(code, Some(1), "{log:#?}");
    assert!(has(&log, "job `audit` finished") && has(&log, "drained"), "{log:#?}");
}

#[tokio::test]
async fn a_task_that_ignores_the_stop_is_named_and_the_process_exits_within_the_grace_period() {
    let service = alone(&["--misbehave", "hang", "--shutdown-grace", "2s"]);
    service.logs("beat").await;
    let asked = Instant::now();
    service.signal(Signal::TERM).unwrap();
    service.logs("task `pulse` did not stop within the grace and was aborted").await;
    assert_eq!(exit(service).await.0, Some(1));
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_draining_process_is_alive_and_not_ready_and_a_second_signal_ends_it_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (service, address) = ready(&["--misbehave", "hang"]).await;
        service.logs("beat").await;
        service.signal(Signal::TERM).unwrap();
        let stopping = r#"{"ready":false,"conditions":{"running":{"state":"not_ready","reason":"stopping"}}}"#;
        let stopping = (503, stopping.to_owned());
        eventually("it is not ready", async || answer(&address, "/readyz").await == stopping).await;
        assert_eq!(answer(&address, "/livez").await.0, 200);
        service.signal(signal).unwrap();
        assert_eq!(exit(service).await.0, Some(code));
    }
}

#[tokio::test]
async fn an_unknown_format_is_named_and_exits_with_78_without_draining() {
    let Done { code, err: stderr, .. } =
        output(&["--greeting", "hello", "--admin-listen", "off", "--misbehave", "foreign-format"]).await;
    assert_eq!(code, Some(78), "{stderr}");
    let named = "task `format` failed: the deployment is written in format 7, this build knows 2: see docs/operate.md";
    assert_eq!(stderr.matches(named).count(), 1, "{stderr}");
    // The last stage may find nothing more to do while the process ends; that is not a stop.
    assert!(!stderr.contains("no more beats") && !stderr.contains("stopping"), "{stderr}");
}

#[tokio::test]
async fn an_admin_address_that_is_taken_is_named_once_and_exits_with_78() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let (code, log) = exit(start(heartbeat(&BEATING[..6]).args(["--admin-listen", &address]))).await;
    let failed: Vec<&Value> = log.iter().filter(|event| event["message"] == "cannot start").collect();
    let why = failed.first().and_then(|event| event["error"].as_str()).unwrap_or_default();
    assert!(why.contains("--admin-listen (TALLY_ADMIN_LISTEN)"), "{log:#?}");
    assert_eq!((code, failed.len()), (Some(78), 1), "{log:#?}");
}

#[tokio::test]
async fn what_is_wrong_is_named_and_exits_with_78_and_a_good_check_help_and_version_exit_with_0() {
    let refused: [(&[&str], &str); 6] = [
        (&["--interval", "0"], "--greeting (TALLY_GREETING): missing"),
        (&["--check", "--interval", "0"], "--greeting (TALLY_GREETING): missing"),
        (&["--check", "--interval", "0"], "--interval (TALLY_INTERVAL): must be"),
        (&["--colour"], "--colour"),
        (&["--check", "--greeting"], "--greeting"),
        (&["--greeting", "x", "--log", "=="], "--log"),
    ];
    for (args, named) in refused {
        let Done { code, out: stdout, err: stderr } = output(args).await;
        assert_eq!((code, stdout.as_str()), (Some(78), ""), "{args:?}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
    let accepted: [(&[&str], &str); 3] = [
        (&["--help"], "Usage: heartbeat"),
        (&["--version"], "tally-heartbeat"),
        (&["--check", "--greeting", "hello"], "tally-heartbeat: the configuration is valid\n"),
    ];
    for (args, said) in accepted {
        let Done { code, out: stdout, err: stderr } = output(args).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(stdout.contains(said) && !stdout.contains(CANARY), "{stdout}");
    }
}

#[tokio::test]
async fn a_client_that_never_finishes_its_headers_is_dropped_and_delays_no_other() {
    let (service, address) = ready(&["--shutdown-grace", "4s"]).await;
    let mut slow = TcpStream::connect(&address).await.unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    assert_eq!(answer(&address, "/livez").await.0, 200);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_admin_listener_on_loopback_refuses_a_name_that_may_be_another_sites_and_a_request_must_name_one_host() {
    let (service, address) = ready(&[]).await;
    for (host, status) in [("evil.example:9091", 403), ("localhost:9091", 200), ("[::1]:9091", 200)] {
        for line in ["GET /metrics", "GET /greeting", "PUT /log-level"] {
            let answer = send(&address, line, &format!("host: {host}\r\n"), "info").await.expect("an answer");
            assert_eq!(answer.status, status, "{line} of {host}: {answer:?}");
        }
    }
    for hosts in ["", "host: x\r\nhost: y\r\n"] {
        let answer = exchange(&address, format!("GET /livez HTTP/1.1\r\n{hosts}\r\n")).await;
        assert!(answer.as_ref().is_some_and(|answer| answer.status == 400), "{hosts:?}: {answer:?}");
    }
    service.stop().await.unwrap();
}
