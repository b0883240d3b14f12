//! Tests the local stack as a program: a run verifies its counts and finds one that was put wrong, two Regions agree
//! again after a cut, pages of other sites are refused, metrics are complete, and Ctrl-C ends it within seconds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use tally_testkit::http::{Answer, get, send};
use tally_testkit::process::{Signal, command};
use tally_testkit::{Process, eventually};
use tokio::time::Instant;

const ANY_PORT: [&str; 8] = ["--kafka-port", "0", "--dynamodb-port", "0", "--api-port", "0", "--admin-listen", "off"];

fn program() -> Command {
    command(env!("CARGO_BIN_EXE_tally-localstack"))
}

fn start(args: &[&str]) -> Process {
    Process::start("stack", program().args(ANY_PORT).args(args)).unwrap()
}

/// Everything said until it ended by itself, and its exit code.
async fn end(stack: &Process) -> (String, Option<i32>) {
    let code = stack.code().await;
    (stack.printed(), code)
}

/// The address in the URL at the end of a line.
async fn address(stack: &Process, line: &str) -> String {
    let line = stack.prints(line).await;
    line.split_whitespace().last().unwrap().trim_start_matches("http://").trim_end_matches('/').to_owned()
}

/// Posts JSON.
async fn post(address: &str, path: &str, more: &str, body: &str) -> Answer {
    let headers = format!("host: {address}\r\ncontent-type: application/json\r\n{more}");
    send(address, &format!("POST {path}"), &headers, body).await.expect("a whole answer")
}

#[tokio::test]
async fn after_a_short_load_every_row_and_every_count_is_what_was_said() {
    let stack = start(&["--duration", "3s", "--verify", "--rate", "200", "--posts", "5", "--users", "40"]);
    let (said, code) = end(&stack).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("differences  0"), "{said}");
    let sets = ["likes", "retweets", "replies", "uses"].map(|set| (set, "rows"));
    for (counter, rows) in sets.into_iter().chain([("views", "cells")]) {
        let compared = said.lines().find_map(|line| line.trim_start().strip_prefix(counter)?.split_once(rows));
        let there: Option<u64> = compared.and_then(|(number, _)| number.trim().parse().ok());
        assert!(there.is_some_and(|there| there > 0), "{counter}: {said}");
    }
}

#[tokio::test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
async fn a_count_put_wrong_by_hand_is_found() {
    let stack = start(&["--duration", "20s", "--verify", "--rate", "200", "--posts", "1", "--users", "40"]);
    let page = address(&stack, "page ").await;
    stack.prints("events/s").await;
    let action = r#"{"action":"inject_drift","post_id":"post-1","by":3}"#;
    eventually("there is a counter", async || post(&page, "/local/actions", "", action).await.status == 200).await;
    let (said, code) = end(&stack).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("post-1#0:") && said.contains("post-1:") && !said.contains("user-"), "{said}");
}

#[tokio::test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
async fn two_regions_answer_the_same_sums_once_a_mirror_that_was_cut_has_healed() {
    let load = ["--rate", "200", "--posts", "5", "--users", "40"];
    let stack = start(&[&["--regions", "2", "--duration", "60s", "--verify"], &load[..]].concat());
    let page = address(&stack, "page ").await;
    stack.prints("events/s").await;
    let act = async |action: &str| {
        let answer = post(&page, "/local/actions", "", &format!(r#"{{"action":"{action}"}}"#)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let answers = async |fresh: &str| {
        let told = get(&page, "/v1/posts/post-1/counters/likes?detail=regions").await.expect("a whole answer").body;
        told.contains(r#""region":"us""#) && told.contains(r#""exact":true"#) && told.contains(fresh)
    };
    eventually("both Regions are in", async || answers(r#""fresh":true}]"#).await).await;
    act("cut_mirror").await;
    eventually("us is behind", async || answers(r#""behind":["us"]"#).await).await;
    act("heal_mirror").await;
    let (said, code) = end(&stack).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\n  regions      us has ") && said.contains("mirror cut 1\u{d7}"), "{said}");
}

#[tokio::test]
async fn no_page_of_another_site_reads_or_likes() {
    let stack = start(&["--no-load"]);
    let page = address(&stack, "page ").await;
    stack.prints("ready").await;
    let ask = async |line: &str, host: &str, origin: &str| {
        send(&page, line, &format!("host: {host}\r\n{origin}"), "").await.expect("a whole answer").status
    };
    for line in ["GET /", "GET /local/state", "GET /local/events", "GET /v1/posts/p/likes", "PUT /v1/posts/p/likes/u"] {
        // A name that a name server points here, and a page that knows the address.
        for (host, origin) in [("evil.example:8080", ""), (&page, "origin: http://evil.example\r\n")] {
            assert_eq!(ask(line, host, origin).await, 403, "{line} {host} {origin}");
        }
    }
    let own = format!("origin: http://{page}\r\n");
    assert_eq!(ask("GET /local/state", &page, "").await, 200);
    assert_eq!(ask("PUT /v1/posts/p/likes/u", &page, &own).await, 202);
}

#[tokio::test]
async fn every_metric_of_the_four_services_has_its_help_and_counters_begin_at_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap().to_string();
    drop(taken);
    let line = [&ANY_PORT[..6], &["--no-load", "--admin-listen", &admin]].concat();
    let stack = Process::start("stack", program().args(line).env("TALLY_LINGER", "9s").env("TALLY_RATE", "9")).unwrap();
    stack.prints("ready").await;
    let said = stack.log();
    assert!(
        said.contains("does not read this variable") && said.contains("TALLY_LINGER"),
        "a setting of no effect: {said}"
    );
    assert!(!said.contains("TALLY_RATE"), "a setting of its own: {said}");
    let metrics = get(&admin, "/metrics").await.expect("a whole answer").body;
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

#[tokio::test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
async fn a_format_that_is_not_known_ends_the_whole_stack_by_name() {
    let stack = start(&["--no-load"]);
    let store = address(&stack, "  DynamoDB ").await;
    stack.prints("ready").await;
    let body = r##"{"TableName":"checkpoints","Key":{"id":{"S":"config"}},"UpdateExpression":"SET #f=:f",
        "ExpressionAttributeNames":{"#f":"format"},"ExpressionAttributeValues":{":f":{"N":"7"}}}"##;
    let head = "x-amz-target: DynamoDB_20120810.UpdateItem\r\nauthorization: test\r\n";
    let answer = post(&store, "/", head, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let (code, log) = (stack.code().await, stack.log());
    assert_eq!(code, Some(78), "{log}");
    assert!(log.contains("the deployment is written in format 7, this build knows 2: see docs/operate.md"), "{log}");
}

#[tokio::test]
#[ignore = "night: runs a whole stack for long, or judges how fast the machine is"]
async fn ctrl_c_ends_it_within_five_seconds_whatever_it_is_doing_and_it_says_what_was_done() {
    let moments: [(&[&str], &str); 4] = [
        (&[], "load "),
        (&[], "events/s"),
        (&["--duration", "2s", "--verify"], "waiting until every change"),
        (&["--chaos", "--seed", "7"], "   chaos: "),
    ];
    for (args, moment) in moments {
        let stack = start(args);
        stack.prints(moment).await;
        let asked = Instant::now();
        stack.signal(Signal::INT).unwrap();
        let (said, code) = end(&stack).await;
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(5) && code == Some(0), "{moment}: {code:?} after {took:?}");
        let says = said.contains("what went wrong on purpose") && said.contains("\n  on purpose ");
        assert_eq!(says, args.contains(&"--chaos"), "{said}");
    }
}
