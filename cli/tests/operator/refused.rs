//! Errors of `tally`: each is one line that says why, and has an exit code that says who can mend it.

use std::net::TcpListener;
use std::process::Command;

use serde_json::json;
use tally_emulator::{Config, Policies};
use tally_testkit::process::run;

use crate::changes::File;
use crate::stage::{Said, Stage};

fn is_one_line(said: &Said) -> bool {
    said.out.is_empty() && said.err.starts_with("tally: ") && said.err.lines().count() == 1
}

async fn with(stage: &Stage, args: &[&str], change: impl FnOnce(&mut Command)) -> Said {
    let mut command = stage.command(args);
    change(&mut command);
    run(&mut command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_is_one_clear_line() {
    let stage = Stage::set().await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = format!("http://{closed}");
    let file = File::of("never-sent.ndjson", "");
    let mistakes = [
        (with(&stage, &["status"], |c| _ = c.env("AWS_REGION", "eu west")).await, 78, "AWS_REGION: not "),
        (with(&stage, &["status"], |c| _ = c.env_remove("AWS_REGION")).await, 78, "AWS_REGION: missing"),
        (
            with(&stage, &["status"], |c| _ = c.env_remove("AWS_SECRET_ACCESS_KEY")).await,
            78,
            "AWS_SECRET_ACCESS_KEY: missing",
        ),
        (
            stage.tally(&["status", "--table-prefix", "blue-"]).await,
            78,
            "there are no tables with the prefix `blue-` in us-east-1; deployments are there with the table prefix none",
        ),
        (stage.tally(&["status", "--shards", "8"]).await, 78, "--shards is 8, but this deployment was created with 4"),
        (
            with(&stage, &["status"], |c| _ = c.env("AWS_ENDPOINT_URL", &closed)).await,
            69,
            "cannot use the tables without a prefix in us-east-1: likes: dispatch failure",
        ),
        (
            with(&stage, &["doctor"], |c| _ = c.env("AWS_ENDPOINT_URL", &closed)).await,
            69,
            "cannot use the tables without a prefix in us-east-1: likes: dispatch failure",
        ),
        (
            with(&stage, &["import", file.name(), "--patience", "1s"], |c| _ = c.env("TALLY_BROKERS", "127.0.0.1:1"))
                .await,
            69,
            "given up after 1s, which --patience sets",
        ),
        (with(&stage, &["topic", "show"], |c| _ = c.env_remove("TALLY_BROKERS")).await, 2, "say --brokers"),
        (
            with(&stage, &["post", "show", "b"], |c| _ = c.env("TALLY_BROKER", "x")).await,
            78,
            "TALLY_BROKER: no Tally program has this setting: did you mean TALLY_BROKERS?",
        ),
        (stage.tally(&["status", "--sasl-user", "u"]).await, 78, "--sasl-user"),
    ];
    for (said, code, why) in mistakes {
        assert_eq!(said.code, Some(code), "{why}: {said:?}");
        assert!(is_one_line(&said) && said.err.contains(why), "{why}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_that_is_not_known_and_a_configuration_that_is_lost_are_refused() {
    let stage = Stage::set().await;
    for (format, named) in [(1, "format 1"), (7, "format 7")] {
        stage.store().put("checkpoints", &json!({"id": "config", "shards": 4, "format": format})).await;
        let said = stage.tally(&["status"]).await;
        assert_eq!(said.code, Some(78), "{said:?}");
        let why = format!("the deployment is written in {named}, this build knows 2: see docs/operate.md");
        assert!(is_one_line(&said) && said.err.contains(&why), "{said:?}");
    }
    stage.store().delete("checkpoints", &json!({"id": "config"})).await;
    let said = stage.tally(&["status"]).await;
    assert!(is_one_line(&said) && said.err.contains("has no `config`: no service has started yet"), "{said:?}");
    assert_eq!(said.code, Some(78), "{said:?}");
    stage.store().put("likes", &json!({"pk": "p#1", "user_id": "u", "liked_at": 5})).await;
    let said = stage.tally(&["status"]).await;
    assert!(
        is_one_line(&said) && said.err.contains("it is lost, since other tables have items: tally adopt"),
        "{said:?}"
    );
    assert_eq!(said.code, Some(78), "{said:?}");
    for table in ["likes", "like_counts", "checkpoints", "recounts"] {
        stage.store().call("DeleteTable", json!({"TableName": table})).await;
    }
    let said = stage.tally(&["status"]).await;
    let why = "there are no tables without a prefix in us-east-1; no deployment is there: tally prepare creates one, ";
    assert!(said.code == Some(78) && is_one_line(&said) && said.err.contains(why), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_permitted_is_named() {
    let arn = |table: &str| format!("arn:aws:dynamodb:*:*:table/{table}");
    let grant = |actions: &[&str], resource: String| {
        let actions: Vec<String> = actions.iter().map(|action| format!("dynamodb:{action}")).collect();
        json!({"Effect": "Allow", "Action": actions, "Resource": resource})
    };
    let role = |statements: Vec<serde_json::Value>| {
        let document = json!({"Version": "2012-10-17", "Statement": statements});
        json!({"Type": "AWS::IAM::Role", "Properties": {"Policies": [{"PolicyName": "p", "PolicyDocument": document}]}})
    };
    let tables = ["likes", "like_counts", "checkpoints", "recounts"];
    let reader =
        tables.iter().map(|table| grant(&["DescribeTable", "GetItem", "BatchGetItem", "Scan", "Query"], arn(table)));
    let reader: Vec<_> = reader.chain([grant(&["DescribeStream"], arn("likes/stream/*"))]).collect();
    let stranger = vec![grant(&["GetItem"], arn("elsewhere"))];
    let updates = tables[1..].iter().map(|table| grant(&["UpdateItem"], arn(table)));
    let writes: Vec<_> = updates.chain([grant(&["BatchWriteItem"], arn("likes"))]).collect();
    let operator = [&reader[..], &writes].concat();
    let template = json!({"Resources": {
        "Reader": role(reader), "Operator": role(operator), "Stranger": role(stranger)
    }});
    let policies = Some(Policies::of(&template).unwrap());
    let stage = Stage::under(Config { shards: 2, policies, ..Config::default() }).await;

    let stranger = with(&stage, &["status"], |c| _ = c.env("AWS_ACCESS_KEY_ID", "Stranger")).await;
    assert_eq!(stranger.code, Some(78), "{stranger:?}");
    assert!(is_one_line(&stranger) && stranger.err.contains("AccessDeniedException"), "{stranger:?}");
    let line = ["status", "--late", "10m"];
    let reader = with(&stage, &line, |c| _ = c.env("AWS_ACCESS_KEY_ID", "Reader")).await;
    assert_eq!(reader.code, Some(0), "{reader:?}");
    let line = ["audit", "start", "--yes", "--why", "a test"];
    let writes = with(&stage, &line, |c| _ = c.env("AWS_ACCESS_KEY_ID", "Reader")).await;
    assert_eq!(writes.code, Some(78), "{writes:?}");
    assert!(writes.err.contains("cannot write the ledger; nothing was changed"), "{writes:?}");
    // Without brokers: the Kafka of this stage does not say how long it keeps a topic.
    let doctor = async |role: &str| {
        with(&stage, &["doctor"], |c| _ = c.env("AWS_ACCESS_KEY_ID", role).env_remove("TALLY_BROKERS")).await
    };
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
        let said = stage.tally(&["completions", shell]).await;
        assert!(said.code == Some(0) && said.out.contains("recount"), "{shell}: {said:?}");
    }
    let man = stage.tally(&["man"]).await;
    assert!(man.code == Some(0) && man.out.contains(".TH tally 1"), "{man:?}");
    let cost = stage.tally(&["cost", "--likes-per-day", "5e9", "--months", "12"]).await;
    assert!(cost.code == Some(0) && cost.out.contains("rows"), "{cost:?}");
    let old = std::env::temp_dir().join(format!("tally-prices-{}.toml", std::process::id()));
    let list = include_str!("../../prices.toml").replace("as_of = \"20", "as_of = \"19");
    let list = list.replace("\"1926", "\"1996");
    std::fs::write(&old, list).unwrap();
    let file = old.to_str().unwrap();
    let [shown, checked] = [&["cost", "--prices", file][..], &["cost", "--prices", file, "--check"]];
    let (shown, checked) = (stage.tally(shown).await, stage.tally(checked).await);
    std::fs::remove_file(&old).unwrap();
    assert_eq!((shown.code, checked.code), (Some(0), Some(1)), "{checked:?}");
    assert!(checked.out.contains("older than 180 days"), "{checked:?}");
}
