//! Tests `tally prepare`, which creates the missing tables and topics of a deployment: what it shows and creates, what
//! it refuses, and that a second run changes nothing.

use std::time::Duration;

use serde_json::json;
use tally_core::changes::{Body, DeploymentId, LossNumber, Message};
use tally_testkit::process::run;

use crate::stage::{Said, Stage, shown};

const YES: [&str; 3] = ["--yes", "--why", "test"];
/// Topics that are there. The in-process cluster creates none, so some stand for those of lists.
const EXISTING: [&str; 4] = ["likes", "changes", "likes", "likes"];

/// Prepares a deployment of its own beside the stage's.
async fn prepare(stage: &Stage, brokers: &str, topics: [&str; 4], more: &[&str]) -> Said {
    let [likes, changes, boards, blocks] = topics;
    let mut command = stage.command("prepare -o json --table-prefix new- --partitions 3");
    command.args(["--topic", likes, "--changes-topic", changes, "--boards-topic", boards, "--blocks-topic", blocks]);
    run(command.args(more).env("TALLY_BROKERS", brokers)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_yes_it_shows_which_tables_are_missing_and_creates_none() {
    let stage = Stage::set().await;
    let before = stage.store().call("ListTables", json!({})).await;
    let prepare = async |more: &[&str]| prepare(&stage, &stage.engines.brokers, EXISTING, more).await;
    let said = prepare(&[]).await;
    let json = said.json();
    let plan = json["plan"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>();
    assert!(plan.contains(&"create table new-likes, with a stream of both images and expiry by `gone`"), "{said:?}");
    assert!(plan.contains(&"create table new-like_counts"), "{said:?}");
    assert_eq!((&json["dry_run"], plan.len()), (&json!(true), 4), "{said:?}");
    let start = json["start"].as_array().unwrap();
    assert!(start.contains(&json!("export TALLY_CHANGES_TOPIC=changes")), "a prefix stands beside its topic: {said:?}");
    assert_eq!(stage.store().call("ListTables", json!({})).await, before);
    shown(&prepare(&["--yes"]).await, 2, []);
    assert_eq!(stage.store().call("ListTables", json!({})).await, before, "a reason is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_a_deployment_that_is_gone_is_named_and_its_empty_successor_has_to_be_adopted() {
    let stage = Stage::set().await;
    let line = "prepare --boards-topic likes --blocks-topic likes --partitions 6";
    for table in ["like_counts", "recounts"] {
        stage.store().call("DeleteTable", json!({"TableName": table})).await;
        let gone =
            format!("of the tables without a prefix in us-east-1, {table} is gone, and others are there: restore");
        for verb in ["status", "post show p"] {
            let said = stage.shows(verb, 78, [&*gone, "tally adopt tables"]).await;
            assert!(!said.err.contains("deployment"), "{said:?}");
        }
        tally_adapters::dynamodb::ensure_tables(&stage.connection).await.unwrap();
        stage.does("adopt tables", 0, []).await;
    }
    stage.store().call("DeleteTable", json!({"TableName": "recounts"})).await;
    // Before, while and after the table is created.
    for more in [&[][..], &YES, &[]] {
        let said = run(stage.command(line).args(more)).await;
        assert!(said.out.contains("\n  tally adopt tables --yes --why ..\n"), "{said:?}");
        assert!(!said.out.contains("the services start with"), "{said:?}");
        let stays =
            "topic likes is there, with 2 partitions, and stays so: --partitions 6 is for a topic that is created";
        assert!(said.out.contains(stays), "{said:?}");
        assert!(said.out.contains("topic likes.dlq is there, with 1 partition\n"), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_changes_with_messages_of_another_deployment_is_refused_before_anything_is_created() {
    let stage = Stage::set().await;
    let message = Message { read: stage.clock.now(), body: Body::Repaired(LossNumber(1)) };
    stage.say("changes", 1, &message.write(&DeploymentId("stage".into())), &[], Duration::ZERO).await;
    let before = stage.store().call("ListTables", json!({})).await;
    let said = prepare(&stage, &stage.engines.brokers, EXISTING, &YES).await;
    shown(&said, 2, ["another deployment, stage", "--changes-topic"]);
    assert_eq!(stage.store().call("ListTables", json!({})).await, before);
    let own = stage.tally("prepare -o json --boards-topic likes --blocks-topic likes").await;
    assert!(own.json()["found"].to_string().contains("topic changes is there"), "{own:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_lists_that_another_deployment_uses_is_refused() {
    let stage = Stage::set().await;
    let own = stage.deployment().await;
    let before = stage.store().call("ListTables", json!({})).await;
    let of_own = async |boards: &str, blocks: &str| {
        stage.tally(&format!("prepare --boards-topic {boards} --blocks-topic {blocks}")).await
    };
    let named = [("tally.deployment", own.as_str())];
    // A record without a name may be of an older version, or an id to block.
    for (flag, boards, blocks, headers) in
        [("boards", "likes.dlq", "likes", &[][..]), ("blocks", "likes", "likes.dlq", &named)]
    {
        stage.say("likes.dlq", 0, b"1", headers, Duration::ZERO).await;
        let own = of_own(boards, blocks).await;
        assert!(own.out.contains("topic likes.dlq is there"), "{own:?}");
        let new = prepare(&stage, &stage.engines.brokers, ["likes", "changes", boards, blocks], &YES).await;
        shown(&new, 2, ["another deployment", &format!("a topic of its own, by --{flag}-topic")]);
    }
    stage.say("likes.dlq", 0, b"1", &[("tally.deployment", "theirs")], Duration::ZERO).await;
    let theirs = "`likes.dlq` has messages of another deployment, theirs: give each";
    shown(&of_own("likes.dlq", "likes").await, 2, [theirs]);
    assert_eq!(stage.store().call("ListTables", json!({})).await, before);
}

/// Needs real brokers: librdkafka's in-process cluster creates no topics.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the brokers that TALLY_TEST_BROKERS names; localstack/engines test runs it"]
async fn with_yes_all_of_it_is_there_the_second_time_changes_nothing_and_a_wrong_topic_is_named() {
    let (stage, brokers) = (Stage::set().await, std::env::var("TALLY_TEST_BROKERS").unwrap());
    let name = |what| format!("prepared-{}-{what}", stage.clock.now().0);
    let topics = ["likes", "changes", "boards", "blocks"].map(name);
    let [likes, changes, boards, blocks] = topics.each_ref().map(String::as_str);
    let first = prepare(&stage, &brokers, [likes, changes, boards, blocks], &YES).await;
    assert_eq!((first.code, first.json()["outcome"].clone()), (Some(0), json!("created")), "{first:?}");
    assert_eq!(first.json()["plan"].as_array().map(Vec::len), Some(9), "four tables and five topics: {first:?}");
    let start = first.json()["start"].to_string();
    assert!(start.contains("export TALLY_TABLE_PREFIX=new-") && start.contains("tally-consumer"), "{first:?}");
    let doctor = stage.tally("doctor -o json --table-prefix new-").await.json();
    let is_good =
        |what: &str| doctor.as_array().unwrap().iter().any(|one| one["what"] == what && one["verdict"] == "good");
    let good = ["tables", "new-likes: expiry", "new-recounts: expiry", "likes: stream"];
    assert!(good.iter().all(|what| is_good(what)), "{doctor}");
    let ledger = stage.store().items("new-recounts").await;
    assert!(json!(ledger).to_string().contains("create topic"), "{ledger:?}");
    // Once more, with the log of changes named in the place of the compacted topic `boards`.
    let second = prepare(&stage, &brokers, [likes, changes, changes, blocks], &YES).await;
    let json = second.json();
    assert_eq!((second.code, &json["plan"]), (Some(1), &json!([])), "{second:?}");
    let wrong = format!("topic {changes}: cleanup.policy is delete, and has to be compact");
    assert_eq!(json["wrong"], json!([wrong]), "{second:?}");
}
