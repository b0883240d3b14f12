//! `tally prepare`: what it shows and creates, the second time as well.

use std::time::Duration;

use serde_json::json;
use tally_core::changes::{Body, DeploymentId, LossNumber, Message};
use tally_testkit::process::run;

use crate::stage::{Said, Stage};

/// Prepares a deployment of its own beside the stage's.
async fn prepare(stage: &Stage, brokers: &str, topics: &[String], more: &[&str]) -> Said {
    let [likes, changes, boards, blocks] = topics else { panic!("four topics") };
    let of = ["prepare", "-o", "json", "--table-prefix", "new-", "--topic", likes, "--changes-topic", changes];
    let lists = ["--boards-topic", boards, "--blocks-topic", blocks, "--partitions", "3"];
    run(stage.command(&of).args(lists).args(more).env("TALLY_BROKERS", brokers)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_yes_it_shows_which_tables_are_missing_and_creates_none() {
    let stage = Stage::set().await;
    let before = stage.store().call("ListTables", json!({})).await;
    let topics = ["likes", "changes", "likes", "likes"].map(str::to_owned);
    let said = prepare(&stage, &stage.engines.brokers, &topics, &[]).await;
    let json = said.json();
    let plan = json["plan"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>();
    assert!(plan.contains(&"create table new-likes, with a stream of both images and expiry by `gone`"), "{said:?}");
    assert!(plan.contains(&"create table new-like_counts"), "{said:?}");
    assert_eq!((&json["dry_run"], plan.len()), (&json!(true), 4), "{said:?}");
    let start = json["start"].as_array().unwrap();
    assert!(start.contains(&json!("export TALLY_CHANGES_TOPIC=changes")), "a prefix stands beside its topic: {said:?}");
    assert_eq!(stage.store().call("ListTables", json!({})).await, before);
    let hasty = prepare(&stage, &stage.engines.brokers, &topics, &["--yes"]).await;
    assert_eq!(hasty.code, Some(2), "{hasty:?}");
    assert_eq!(stage.store().call("ListTables", json!({})).await, before, "a reason is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_a_deployment_that_is_gone_is_named_and_its_empty_successor_has_to_be_adopted() {
    let stage = Stage::set().await;
    // The in-process cluster creates no topics, so those that are there stand for the others.
    let prepare = async |more: &[&str]| {
        let of = ["prepare", "--boards-topic", "likes", "--blocks-topic", "likes", "--partitions", "6"];
        run(stage.command(&of).args(more)).await
    };
    for table in ["like_counts", "recounts"] {
        stage.store().call("DeleteTable", json!({"TableName": table})).await;
        for verb in [&["status"][..], &["post", "show", "p"]] {
            let said = stage.tally(verb).await;
            let why =
                format!("of the tables without a prefix in us-east-1, {table} is gone, and others are there: restore");
            assert!(said.code == Some(78) && said.err.contains(&why), "{said:?}");
            assert!(said.err.contains("tally adopt tables") && !said.err.contains("deployment"), "{said:?}");
        }
        tally_adapters::dynamodb::ensure_tables(&stage.connection).await.unwrap();
        let adopted = stage.tally(&["adopt", "tables", "--yes", "--why", "a test"]).await;
        assert_eq!(adopted.code, Some(0), "{adopted:?}");
    }
    stage.store().call("DeleteTable", json!({"TableName": "recounts"})).await;
    // Before, while and after the table is created.
    for more in [&[][..], &["--yes", "--why", "a test"], &[]] {
        let said = prepare(more).await;
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
    let topics = ["likes", "changes", "likes", "likes"].map(str::to_owned);
    let said = prepare(&stage, &stage.engines.brokers, &topics, &["--yes", "--why", "a test"]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    let refusal = format!("{said:?}");
    assert!(refusal.contains("another deployment, stage") && refusal.contains("--changes-topic"), "{refusal}");
    assert_eq!(stage.store().call("ListTables", json!({})).await, before);
    let own =
        run(&mut stage.command(&["prepare", "-o", "json", "--boards-topic", "likes", "--blocks-topic", "likes"])).await;
    assert!(own.json()["found"].to_string().contains("topic changes is there"), "{own:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_lists_that_another_deployment_uses_is_refused() {
    let stage = Stage::set().await;
    let own = stage.deployment().await;
    let before = stage.store().call("ListTables", json!({})).await;
    let of_own = async |boards: &str, blocks: &str| {
        run(&mut stage.command(&["prepare", "--boards-topic", boards, "--blocks-topic", blocks])).await
    };
    let named = [("tally.deployment", own.as_str())];
    // A record without a name may be of an older version, or an id to block.
    for (flag, boards, blocks, headers) in
        [("boards", "likes.dlq", "likes", &[][..]), ("blocks", "likes", "likes.dlq", &named)]
    {
        stage.say("likes.dlq", 0, b"1", headers, Duration::ZERO).await;
        let own = of_own(boards, blocks).await;
        assert!(own.out.contains("topic likes.dlq is there"), "{own:?}");
        let topics = ["likes", "changes", boards, blocks].map(str::to_owned);
        let new = prepare(&stage, &stage.engines.brokers, &topics, &["--yes", "--why", "a test"]).await;
        let refusal = format!("a topic of its own, by --{flag}-topic");
        assert!(new.err.contains("another deployment") && new.err.contains(&refusal), "{new:?}");
        assert_eq!(new.code, Some(2), "{new:?}");
    }
    stage.say("likes.dlq", 0, b"1", &[("tally.deployment", "theirs")], Duration::ZERO).await;
    let own = of_own("likes.dlq", "likes").await;
    assert_eq!(own.code, Some(2), "{own:?}");
    assert!(own.err.contains("`likes.dlq` has messages of another deployment, theirs: give each"), "{own:?}");
    assert_eq!(stage.store().call("ListTables", json!({})).await, before);
}

/// Needs real brokers: librdkafka's in-process cluster creates no topics.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the brokers that TALLY_TEST_BROKERS names; localstack/engines test runs it"]
async fn with_yes_all_of_it_is_there_the_second_time_changes_nothing_and_a_wrong_topic_is_named() {
    let (stage, brokers) = (Stage::set().await, std::env::var("TALLY_TEST_BROKERS").unwrap());
    let name = |what| format!("prepared-{}-{what}", stage.clock.now().0);
    let topics = ["likes", "changes", "boards", "blocks"].map(name);
    let yes = ["--yes", "--why", "a test"];
    let first = prepare(&stage, &brokers, &topics, &yes).await;
    assert_eq!((first.code, first.json()["outcome"].clone()), (Some(0), json!("created")), "{first:?}");
    assert_eq!(first.json()["plan"].as_array().map(Vec::len), Some(9), "four tables and five topics: {first:?}");
    let start = first.json()["start"].to_string();
    assert!(start.contains("export TALLY_TABLE_PREFIX=new-") && start.contains("tally-consumer"), "{first:?}");
    let doctor = run(stage.command(&["doctor", "-o", "json"]).env("TALLY_TABLE_PREFIX", "new-")).await.json();
    let is_good =
        |what: &str| doctor.as_array().unwrap().iter().any(|one| one["what"] == what && one["verdict"] == "good");
    assert!(
        ["tables", "new-likes: expiry", "new-recounts: expiry", "likes: stream"].iter().all(|what| is_good(what)),
        "{doctor}"
    );
    let ledger = stage.store().items("new-recounts").await;
    assert!(json!(ledger).to_string().contains("create topic"), "{ledger:?}");
    // Once more, with the log of changes named in the place of the compacted topic `boards`.
    let [likes, changes, _, blocks] = topics;
    let topics = [likes, changes.clone(), changes, blocks];
    let second = prepare(&stage, &brokers, &topics, &yes).await;
    let json = second.json();
    assert_eq!((second.code, &json["plan"]), (Some(1), &json!([])), "{second:?}");
    assert_eq!(json["wrong"].as_array().map(Vec::len), Some(1), "{second:?}");
    assert!(
        json["wrong"][0].as_str().unwrap().ends_with("cleanup.policy is delete, and has to be compact"),
        "{second:?}"
    );
}
