//! Tests the errors of `tally`: each is one line that says why, and has an exit code that says who can mend it. Also
//! tests that completions and the manual are written, and that `tally cost` finds a price list that is old.

use std::net::TcpListener;

use serde_json::json;
use tally_emulator::{Config, Policies};
use tally_testkit::process::run;

use crate::changes::File;
use crate::stage::{Said, Stage, shown};

/// Checks that a command said nothing but why it could do nothing, in one line.
fn one_line(said: &Said, code: i32, why: &str) {
    shown(said, code, [why]);
    assert!(said.out.is_empty() && said.err.starts_with("tally: ") && said.err.lines().count() == 1, "{said:?}");
}

/// Runs a command with variables that have another value or, where it is empty, are missing.
async fn with(stage: &Stage, variables: &[(&str, &str)], line: &str) -> Said {
    let mut command = stage.command(line);
    for (name, value) in variables {
        _ = if value.is_empty() { command.env_remove(name) } else { command.env(name, value) };
    }
    run(&mut command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_is_one_clear_line() {
    let stage = Stage::set().await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = format!("http://{closed}");
    let file = File::of("never-sent.ndjson", "");
    let import = format!("import {} --patience 1s", file.name());
    let away = "cannot use the tables without a prefix in us-east-1: likes: dispatch failure";
    let other =
        "there are no tables with the prefix `blue-` in us-east-1; deployments are there with the table prefix none";
    let nobody = [("TALLY_OPERATOR", ""), ("USER", ""), ("LOGNAME", "")];
    let who = "with --yes, say --why and --operator or TALLY_OPERATOR (this machine does not know who you are)\n";
    one_line(&with(&stage, &nobody, "audit start --yes").await, 2, who);
    let unknown = "TALLY_BROKER: no Tally program has this setting: did you mean TALLY_BROKERS?";
    for (variable, line, code, why) in [
        (Some(("AWS_REGION", "eu west")), "status", 78, "AWS_REGION: not "),
        (Some(("AWS_REGION", "")), "status", 78, "AWS_REGION: missing"),
        (Some(("AWS_SECRET_ACCESS_KEY", "")), "status", 78, "AWS_SECRET_ACCESS_KEY: missing"),
        (None, "status --table-prefix blue-", 78, other),
        (None, "status --shards 8", 78, "--shards is 8, but this deployment was created with 4"),
        (Some(("AWS_ENDPOINT_URL", &*closed)), "status", 69, away),
        (Some(("AWS_ENDPOINT_URL", &*closed)), "doctor", 69, away),
        (Some(("TALLY_BROKERS", "127.0.0.1:1")), &*import, 69, "given up after 1s, which --patience sets"),
        (Some(("TALLY_BROKERS", "")), "topic show", 2, "say --brokers"),
        (Some(("TALLY_BROKER", "x")), "post show b", 78, unknown),
        (None, "status --sasl-user u", 78, "--sasl-user"),
        (None, "audit start --yes", 2, "with --yes, say --why\n"),
    ] {
        one_line(&with(&stage, variable.as_slice(), line).await, code, why);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_that_is_not_known_and_a_configuration_that_is_lost_are_refused() {
    let stage = Stage::set().await;
    for format in [1, 7] {
        stage.store().put("checkpoints", &json!({"id": "config", "shards": 4, "format": format})).await;
        let why = format!("the deployment is written in format {format}, this build knows 2: see docs/operate.md");
        one_line(&stage.tally("status").await, 78, &why);
    }
    stage.store().delete("checkpoints", &json!({"id": "config"})).await;
    one_line(&stage.tally("status").await, 78, "has no `config`: no service has started yet");
    stage.row("p#1", "u").await;
    one_line(&stage.tally("status").await, 78, "it is lost, since other tables have items: tally adopt");
    for table in ["likes", "like_counts", "checkpoints", "recounts"] {
        stage.store().call("DeleteTable", json!({"TableName": table})).await;
    }
    let why = "there are no tables without a prefix in us-east-1; no deployment is there: tally prepare creates one, ";
    one_line(&stage.tally("status").await, 78, why);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_permitted_is_named() {
    let grant = |actions: &[&str], table: &str| {
        let actions: Vec<String> = actions.iter().map(|action| format!("dynamodb:{action}")).collect();
        json!({"Effect": "Allow", "Action": actions, "Resource": format!("arn:aws:dynamodb:*:*:table/{table}")})
    };
    let role = |statements: Vec<serde_json::Value>| {
        let document = json!({"Version": "2012-10-17", "Statement": statements});
        json!({"Type": "AWS::IAM::Role", "Properties": {"Policies": [{"PolicyName": "p", "PolicyDocument": document}]}})
    };
    let reads = ["DescribeTable", "GetItem", "BatchGetItem", "Scan", "Query", "DescribeStream"];
    let (reader, stranger) = (vec![grant(&reads, "*")], vec![grant(&["GetItem"], "elsewhere")]);
    let updates = ["like_counts", "checkpoints", "recounts"].map(|table| grant(&["UpdateItem"], table));
    let operator = [&reader[..], &updates, &[grant(&["BatchWriteItem"], "likes")]].concat();
    let template = json!({"Resources": {
        "Reader": role(reader), "Operator": role(operator), "Stranger": role(stranger)
    }});
    let policies = Some(Policies::of(&template).unwrap());
    let stage = Stage::under(Config { shards: 2, policies, ..Config::default() }).await;

    let by = async |role: &str, line: &str| with(&stage, &[("AWS_ACCESS_KEY_ID", role)], line).await;
    one_line(&by("Stranger", "status").await, 78, "AccessDeniedException");
    shown(&by("Reader", "status --late 10m").await, 0, []);
    let writes = by("Reader", "audit start --yes --why test").await;
    shown(&writes, 78, ["cannot write the ledger; nothing was changed"]);
    // Without brokers: the Kafka of this stage does not say how long it keeps a topic.
    let doctor = async |role: &str| with(&stage, &[("AWS_ACCESS_KEY_ID", role), ("TALLY_BROKERS", "")], "doctor").await;
    let said = doctor("Reader").await;
    assert_eq!(said.out.matches("this process may not write to it").count(), 4, "{said:?}");
    // An operator may put a recount's markers beside rows, in batches, and may write nothing else there.
    let said = doctor("Operator").await;
    assert_eq!(said.out.matches("may be read and written").count(), 4, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_and_the_manual_are_written_and_a_price_list_that_is_old_is_1() {
    let stage = Stage::set().await;
    for shell in ["bash", "zsh", "fish"] {
        stage.shows(&format!("completions {shell}"), 0, ["recount"]).await;
    }
    stage.shows("man", 0, [".TH tally 1"]).await;
    stage.shows("cost --likes-per-day 5e9 --months 12", 0, ["rows"]).await;
    let list = include_str!("../../prices.toml").replace("as_of = \"20", "as_of = \"19");
    let file = File::of("prices.toml", &list.replace("\"1926", "\"1996"));
    stage.shows(&format!("cost --prices {}", file.name()), 0, []).await;
    stage.shows(&format!("cost --prices {} --check", file.name()), 1, ["older than 180 days"]).await;
}
