//! `tally status` and `tally doctor`.

use aws_sdk_dynamodb::types::PointInTimeRecoverySpecification;
use std::net::TcpListener;
use std::time::Duration;

use tally_core::audit::{AuditRun, RunRecord, RunScope, Summary};
use tally_core::lineage::Loss;
use tally_core::ports::{QueueReason, RecountQueue, Runs};
use tally_core::time::UnixMillis;

use crate::stage::{Stage, set_fence};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_deployment_is_0() {
    let stage = Stage::set().await;
    let said = stage.tally(&["status"]).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    assert!(said.out.contains("all is well") && said.out.contains("4 shards a post"), "{said:?}");
}

/// Everything at once that `status` looks for in the tables and in Kafka.
async fn make_unwell(stage: &Stage) {
    stage.checkpoints.open_gap(&Loss::Trimmed("shardId-7".into()), stage.clock.now()).await.unwrap();
    set_fence(stage, 0, 0, "another topic").await;
    stage.say("likes", 1, b"{}", &[], HOUR).await;
    stage.unread_for(HOUR).await;
    stage.put_aside(5).await;
    stage.recounts.enqueue(&"p#3".parse().unwrap(), QueueReason::Negative, stage.clock.now()).await.unwrap();
    let summary = Summary { withheld: 2, left: 2, ..Summary::default() };
    let run = RunRecord {
        run: AuditRun::beginning(stage.clock.now(), 1),
        began: stage.clock.now(),
        ended: Some(stage.clock.now()),
        scope: RunScope::Audit,
        dry_run: false,
        audit: None,
        summary,
    };
    stage.recounts.put_run(&run).await.unwrap();
    let old = UnixMillis(stage.clock.now().0 - 40 * 86_400_000);
    let old = RunRecord {
        run: AuditRun::beginning(old, 2),
        began: old,
        ended: Some(old),
        summary: Summary::default(),
        ..run
    };
    stage.recounts.put_run(&old).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_wrong_is_named_and_the_code_is_1() {
    let stage = Stage::set().await;
    make_unwell(&stage).await;
    let away = TcpListener::bind("127.0.0.1:0").map(|listener| listener.local_addr().unwrap()).unwrap();

    let said = stage.tally(&["status", "-o", "json", "--service", &format!("http://{away}/readyz")]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    let wrong = said.json()["wrong"].clone();
    let named: Vec<&str> = wrong.as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    let expected = [
        "partition halted",
        "rows are late",
        "counts are late",
        "gap open",
        "drift left",
        "audit old",
        "counts in doubt",
        "dead letters",
        "not ready",
    ];
    assert_eq!(named, expected, "{said:?}");
    let detail = |what: &str| {
        let one = wrong.as_array().unwrap().iter().find(|one| one["what"] == what).unwrap();
        one["detail"].as_str().unwrap().to_owned()
    };
    assert!(detail("partition halted").starts_with("likes/0: topic_replaced: "), "{said:?}");
    assert!(detail("rows are late").starts_with("likes/1: 1 records, the first for 60 min"), "{said:?}");
    assert!(detail("counts are late").contains("shardId-late for 60 min"), "{said:?}");
    assert!(detail("gap open").starts_with("trimmed/shardId-7: "), "{said:?}");
    assert!(detail("drift left").ends_with("2 withheld, 2 left"), "{said:?}");
    assert!(detail("counts in doubt").ends_with("1 negative"), "{said:?}");

    let table = stage.tally(&["status"]).await;
    assert_eq!(table.code, Some(1));
    assert!(expected[..8].iter().all(|what| table.out.contains(what)), "{table:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_brokers_the_tables_alone_are_looked_at() {
    let stage = Stage::set().await;
    stage.put_aside(5).await;
    let mut command = stage.command(&["status"]);
    command.env_remove("TALLY_BROKERS");
    let said = crate::stage::run(command).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("not looked at: say --brokers"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_is_not_as_it_has_to_be_and_what_the_engine_does_not_say() {
    let stage = Stage::set().await;
    let kept = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build().unwrap();
    let keep = stage.client().update_continuous_backups().table_name("like_counts");
    keep.point_in_time_recovery_specification(kept).send().await.unwrap();
    let before = stage.everything().await;
    let said = stage.tally(&["doctor", "-o", "json"]).await;
    assert_eq!(stage.everything().await, before, "permissions were tried, and nothing was changed");
    let points = said.json();
    let verdict = |what: &str| {
        let point = points.as_array().unwrap().iter().find(|point| point["what"] == what);
        point.unwrap_or_else(|| panic!("{what}: {said:?}"))["verdict"].as_str().unwrap().to_owned()
    };
    for (what, expected) in [
        ("tables", "good"),
        ("configuration", "good"),
        ("likes: permission", "good"),
        ("recounts: expiry", "good"),
        ("likes: expiry", "good"),
        ("likes: protection", "bad"),
        ("likes: recovery", "bad"),
        ("like_counts: recovery", "good"),
        ("quotas", "unknown"),
        ("clocks", "good"),
        ("stream shards", "good"),
    ] {
        assert_eq!(verdict(what), expected, "{what}: {said:?}");
    }
    assert_eq!(said.code, Some(1), "deletion protection is off");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_older_than_the_counts_is_found() {
    let stage = Stage::set().await;
    let fed =
        [("post_id", crate::stage::text("p")), ("o1", crate::stage::number(900)), ("s1", crate::stage::number(2))];
    stage.put("like_counts", &fed).await;
    let said = stage.tally(&["doctor"]).await;
    assert!(said.out.contains("a counter knows stream shard 900"), "{said:?}");
}
