//! Tests what `tally status`, `tally doctor` and `tally stream` find in a healthy deployment and in one with faults.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;
use tally_core::audit::{QueueReason, Summary};
use tally_core::changes::{Body, DeploymentId, LossNumber, Message, Standing};
use tally_core::register::Generation;
use tally_core::topic::Offset;
use tally_testkit::process::run;
use tokio::time::Instant;

use crate::stage::{Stage, audited, point, shown};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_deployment_is_0() {
    let stage = Stage::set().await;
    let expected = [
        "tables without a prefix in us-east-1, 4 shards a post, format 2",
        "2 partitions, complete up to",
        "0 of the last 0 events lie in another partition",
        "yes: counts are complete up to",
        "say --redis URL",
        "say --service URL",
        "nothing wrong was found in what was looked at",
    ];
    assert_eq!(stage.shows("status --late 10m", 0, expected).await.err, "");
    let json = stage.tally("status --late 10m --redis off -o json").await.json();
    let unseen = json["not_looked_at"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap());
    let unseen: Vec<&str> = unseen.filter(|what| !["consumers", "change-streamers"].contains(what)).collect();
    assert_eq!(unseen, ["services"], "{json}");
    assert_eq!((&json["fresh"], &json["lag"], &json["changes_lag"]), (&json!(true), &json!(0), &json!(0)), "{json}");
    assert_eq!((&json["paused"], &json["misrouted"]), (&json!(false), &json!([])), "{json}");
    let figures = &json["figures"];
    assert_eq!(figures["deployment"], json!({"table_prefix": "", "region": "us-east-1", "shards": 4, "format": "2"}));
    let rows = json!({"partitions": 2, "as_of": json["rows_as_of"], "lag": 0, "paused": false});
    let counts = json!({"partitions": 2, "as_of": json["counts_as_of"], "lag": 0});
    assert_eq!((&figures["rows"], &figures["counts"]), (&rows, &counts), "{json}");
    let fields = ["losses", "dead_letters", "cache"].map(|name| &figures[name]);
    assert_eq!(fields, [&json!({"open": 0}), &json!({"left": 0}), &json!({"on": false})], "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_is_not_late_and_a_dead_change_streamer_is() {
    let stage = Stage::set().await;
    // The time of a stream shard that nothing is written to is stored every 30 s.
    stage.unread_for(Duration::from_secs(42)).await;
    stage.shows("status --late 30s", 0, []).await;
    let dead = Standing { as_of: Some(stage.clock.now().minus(Duration::from_secs(42))), ..Standing::default() };
    stage.stand(0, 2, dead).await;
    let said = stage.shows("status --late 30s", 1, ["counts are late"]).await;
    assert!(!said.out.contains("changes are late"), "{said:?}");
    stage.unread_for(Duration::from_secs(95)).await;
    stage.shows("status --late 30s", 1, ["changes are late"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_dead_for_40_seconds_is_named_with_and_without_kafka() {
    let stage = Stage::set().await;
    stage.come_to(0, 0, stage.clock.now().minus(Duration::from_secs(40))).await;
    stage.say("likes", 0, b"{}", &[], Duration::ZERO).await;
    stage.shows("status", 1, ["rows are late", " s ago, lag 1", "no: counts are complete up to"]).await;
    let said = run(stage.command("status -o json").env_remove("TALLY_BROKERS")).await;
    let json = said.json();
    // The claims say it, too.
    shown(&said, 1, ["rows are late"]);
    assert_eq!((&json["fresh"], &json["lag"]), (&json!(false), &json!(null)), "{json}");
    let why = "lag, misrouting, dead letters, consumers and change-streamers: say --brokers";
    assert_eq!(json["not_looked_at"][0]["why"], why, "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_kafka_away_the_rest_is_said_within_the_patience() {
    let stage = Stage::set().await;
    let began = Instant::now();
    let mut command = stage.command("status --patience 5s --late 10m -o json");
    let said = run(command.env("TALLY_BROKERS", "127.0.0.1:1")).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}: {said:?}", began.elapsed());
    let json = said.json();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(json["wrong"][0]["what"], "no answer", "{json}");
    let unseen = &json["not_looked_at"][0];
    let why = "lag, misrouting, dead letters, consumers and change-streamers: it gave no answer";
    assert_eq!((&unseen["what"], &unseen["why"]), (&json!("Kafka"), &json!(why)), "{json}");
    let figures = &json["figures"];
    let looked_at = ["deployment", "tables", "rows", "changes", "counts", "losses"];
    assert!(looked_at.iter().all(|name| figures[name].is_object()), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn misrouted_events_pauses_and_a_redis_that_is_dead_are_named() {
    let stage = Stage::set().await;
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Both partitions have the events of one post: in one of them they are misrouted.
    for index in [0, 1] {
        for user in 0..3 {
            stage.like(index, "p", &format!("u{user}")).await;
        }
    }
    stage.know(|topic| topic.is_paused = true).await;
    let elsewhere = format!("likes/{}: events lie in other partitions", 1 - tally_core::event::partition_of(b"p", 2));
    let expected = [
        "3 of the last 6 events lie in another partition",
        &elsewhere,
        "likes: 2 partitions, lag 6: tally resume consumer",
        "cache away",
        "it does not answer",
    ];
    stage.shows(&format!("status --late 10m --redis redis://{away}"), 1, expected).await;
}

/// Returns a post whose events belong to this one of two partitions.
fn post_of(index: u32) -> String {
    let mut posts = (0..).map(|n| format!("p{n}"));
    posts.find(|post| tally_core::event::partition_of(post.as_bytes(), 2) == index).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn once_no_misrouted_events_come_any_more_nothing_is_wrong() {
    let stage = Stage::set().await;
    stage.like(1, &post_of(0), "u").await;
    stage.catch_up().await;
    stage.keep(1, None, |kept| kept.misrouted = true).await;
    let status = async || stage.tally("status --late 10m -o json").await;
    let said = status().await;
    assert_eq!((said.code, &said.json()["misrouted"]), (Some(1), &json!([1])), "{said:?}");
    let wrong = said.json()["wrong"][0]["detail"].as_str().unwrap().to_owned();
    assert!(wrong.starts_with("likes/1: events lie in other partitions") && !wrong.contains("adopt"), "{wrong}");
    let post = post_of(1);
    futures_util::future::join_all((0..1_000).map(|_| stage.like(1, &post, "u"))).await;
    stage.catch_up().await;
    let said = status().await;
    assert_eq!((said.code, &said.json()["misrouted"]), (Some(0), &json!([])), "{said:?}");
    let figures = said.json()["figures"].clone();
    assert_eq!(figures["misrouting"], json!({"looked_at": 1_000, "misrouted": 0}));
    assert_eq!(figures["misrouted_before"], json!({"partitions": [1]}));
    let before = "likes/1 had misrouted events, so as_of waits for all partitions";
    stage.shows("status --late 10m", 0, [before]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_from_before_partitions_were_added_are_not_misrouted() {
    let stage = Stage::set().await;
    // The topic had one partition until it had three events.
    for index in [0, 0, 0, 1] {
        stage.like(index, &post_of(1), "u").await;
    }
    let begun = |number, begins: &[u64]| Generation { number, begins: begins.iter().copied().map(Offset).collect() };
    stage.know(|topic| topic.generations = vec![begun(1, &[0]), begun(2, &[3, 0])]).await;
    let said = stage.tally("status --late 10m").await;
    assert!(said.out.contains("0 of the last 4 events lie in another partition"), "{said:?}");
}

/// Starts a service that is ready, and whose clock says `date`. Returns its URL.
fn with_another_clock(date: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/readyz", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        stream.write_all(format!("HTTP/1.1 200 OK\r\nDate: {date}\r\n\r\nready").as_bytes()).unwrap();
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_clock_is_fast_is_named() {
    let stage = Stage::set().await;
    let url = with_another_clock("Fri, 01 Jan 2100 00:00:00 GMT");
    let clock = format!("the clock of {url} is");
    stage.shows(&format!("status --late 10m --service {url}"), 1, ["1 of 1 service ready", &clock, " d fast"]).await;
}

/// Makes everything wrong that `status` looks for in the tables and in Kafka.
async fn make_unwell(stage: &Stage) {
    stage.lose("trimmed", "shardId-7").await;
    let late = Standing { as_of: Some(stage.clock.now().minus(HOUR)), ..Standing::default() };
    stage.stand(1, 3, late).await;
    for of in ["stage", "stage", "stage", "another"] {
        let message = Message { read: stage.clock.now(), body: Body::Repaired(LossNumber(1)) };
        stage.say("changes", 1, &message.write(&DeploymentId(of.into())), &[], Duration::ZERO).await;
    }
    stage.come_to(0, 5, stage.clock.now()).await;
    stage.say("likes", 1, b"{}", &[], HOUR).await;
    stage.come_to(1, 0, stage.clock.now().minus(HOUR)).await;
    stage.unread_for(HOUR).await;
    stage.put_aside(5).await;
    stage.recounts.enqueue(&"p#3".parse().unwrap(), QueueReason::Negative, stage.clock.now()).await.unwrap();
    let now = stage.clock.now();
    let summary = Summary { withheld: 2, left: 2, ..Summary::default() };
    stage.recounts.put_run(&audited(now, summary)).await.unwrap();
    let old = now.minus(Duration::from_secs(40 * 86_400));
    stage.recounts.put_run(&audited(old, Summary::default())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_wrong_is_named_and_the_code_is_1() {
    let stage = Stage::set().await;
    make_unwell(&stage).await;
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let service = format!("http://{away}/readyz");
    let said = stage.shows(&format!("status --late 59m -o json --service {service}"), 1, []).await;
    let wrong = said.json()["wrong"].clone();
    let named: Vec<&str> = wrong.as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    let expected = [
        "partition halted",
        "rows are late",
        "changes are late",
        "counts are late",
        "counts halted",
        "loss open",
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
    let halted = "likes/0: beyond_log: everything is done up to 5, but ";
    assert!(detail("partition halted").starts_with(halted), "{said:?}");
    assert_eq!(detail("rows are late"), "likes/1: complete up to 60 min ago, lag 1", "{said:?}");
    assert!(detail("changes are late").contains("shardId-late-3600 for 60 min, read by no process"), "{said:?}");
    assert_eq!(detail("counts are late"), "partitions 1 of 2: the oldest, partition 1, for 60 min", "{said:?}");
    let halted = "changes/1 stands still at offset 3: it is of deployment \"another\"";
    assert_eq!(detail("counts halted"), halted, "{said:?}");
    assert!(detail("loss open").contains(": trimmed: shardId-7, "), "{said:?}");
    assert!(detail("drift left").ends_with("2 withheld, 2 left"), "{said:?}");
    assert!(detail("counts in doubt").ends_with("1 negative"), "{said:?}");

    let [in_both @ .., _] = expected;
    stage.shows("status --late 59m", 1, in_both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_is_not_as_it_has_to_be_and_what_the_engine_does_not_say() {
    let stage = Stage::set().await;
    let kept = json!({"PointInTimeRecoveryEnabled": true});
    let keep = json!({"TableName": "like_counts", "PointInTimeRecoverySpecification": kept});
    stage.store().call("UpdateContinuousBackups", keep).await;
    let before = stage.everything().await;
    let said = stage.tally("doctor -o json").await;
    assert_eq!(stage.everything().await, before, "permissions were tried, and nothing was changed");
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
        ("likes: stream", "good"),
        ("tables: ids", "good"),
        ("log of changes", "good"),
        ("likes: retention", "unknown"),
        ("changes: retention", "unknown"),
    ] {
        assert_eq!(point(&said, what)[0], expected, "{what}: {said:?}");
    }
    assert_eq!(said.code, Some(1), "deletion protection is off");
    // From here on without Kafka.
    let tables = async || run(stage.command("doctor").env_remove("TALLY_BROKERS")).await;
    stage.expire("likes", "gone", false).await;
    shown(&tables().await, 1, ["expiry is off: switch on expiry by `gone`", "expiry is off, as it has to be"]);
    stage.expire("likes", "liked_at", true).await;
    stage.expire("like_counts", "updated_at", true).await;
    let others =
        ["items expire by `liked_at`: switch on expiry by `gone`", "items expire by `updated_at`: switch expiry off"];
    shown(&tables().await, 1, others);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_lists_everything_it_can_where_stream_and_configuration_are_missing() {
    let stage = Stage::set().await;
    let off = json!({"TableName": "likes", "StreamSpecification": {"StreamEnabled": false}});
    stage.store().call("UpdateTable", off).await;
    stage.store().delete("checkpoints", &json!({"id": "config"})).await;
    let said = run(stage.command("doctor -o json").env_remove("TALLY_BROKERS")).await;
    assert_eq!((said.code, said.err.as_str()), (Some(1), ""), "{said:?}");
    for (what, verdict, detail) in [
        ("tables", "bad", "cannot use the tables"),
        ("likes: form", "bad", "table likes has no stream"),
        ("configuration", "bad", "the checkpoints table has no `config`: no service has started yet"),
        ("likes: stream", "unknown", "table likes has no stream"),
        ("clocks", "unknown", ""),
        ("recounts: permission", "good", ""),
        ("changes: retention", "unknown", "say --brokers"),
    ] {
        let found = point(&said, what);
        assert!(found[0] == verdict && found[1].starts_with(detail), "{what}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_changes_that_is_another_one_or_was_never_set_up_is_found() {
    let stage = Stage::set().await;
    let seen = stage.changes.config().await.unwrap().unwrap();
    stage.changes.adopt_topic(&seen, &tally_core::topic::TopicId("another".into()), 2).await.unwrap().unwrap();
    stage.shows("status", 1, ["log replaced"]).await;
    stage.shows("doctor", 1, ["or another id than it was set up with"]).await;
    stage.store().delete("checkpoints", &json!({"id": "changes/config"})).await;
    stage.shows("status", 1, ["no log of changes"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_shards_are_listed_with_how_far_they_are_in_the_log_and_who_reads_them() {
    let stage = Stage::set().await;
    stage.unread_for(HOUR).await;
    let shards = stage.tally("stream shards").await;
    let late = shards.out.lines().find(|line| line.contains("shardId-late")).unwrap_or_default();
    assert!(late.contains("60 min ago") && late.contains("open, and gone from the listing"), "{shards:?}");
    let leases = stage.tally("stream leases -o json").await.json();
    assert!(leases.as_array().is_some_and(|leases| leases.len() == 3), "{leases}");
    assert_eq!(stage.shows("stream losses", 0, []).await.out, "no loss is open\n");
}
