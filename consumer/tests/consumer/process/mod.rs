//! Tests of the consumer as a process, over real librdkafka, real HTTP and real signals.
//!
//! The sizes suit the checks of a change. Variables set larger ones: `TALLY_TEST_STOPS=100`, and in seconds
//! `TALLY_TEST_OUTAGE=60` and `TALLY_TEST_THROTTLE=30` for longer outages. The campaigns of `e2e` kill consumers, and let
//! several share the partitions.

mod stage;

use std::time::Duration;

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;
use tally_emulator::{Fault, Rule};
use tally_testkit::{eventually, sized};
use tokio::time::Instant;

use self::stage::{READING, Stage, kafka_errors};

/// A backlog of records that compress so well that the in-process cluster keeps all of them.
const BACKLOG: u64 = 40_000;
const PADDING: usize = 4_000;
/// The requests that fail in an outage before memory is checked: nine attempts of each partition.
const REFUSED: u64 = 108;
/// The memory that a consumer of twelve partitions may use in total.
const MEMORY: u64 = 144 << 20;

/// Waits until `holds`, and at least for `span`, which is zero except in longer runs.
async fn eventually_after(span: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    eventually(what, async || holds().await && began.elapsed() >= span).await;
}

fn faults() -> Vec<Rule> {
    let requests = |fault| Rule::new(fault).on("BatchExecuteStatement");
    vec![
        Rule::new(Fault::Throttle).on("PartiQLInsert").chance(0.05),
        requests(Fault::Throttle).chance(0.05),
        requests(Fault::DropReply).chance(0.08),
        requests(Fault::InternalError { applied: None }).chance(0.02),
        requests(Fault::Ghost { max_delay_ms: 3_000, hang_ms: 0 }).chance(0.08),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_become_rows_and_dead_letters_and_sigterm_ends_the_process_with_0() {
    let mut stage = Stage::set().await;
    let consumer = stage.consumer(&[]);
    stage.say(600).await;
    stage.ends_right(&consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_bad_record_of_three_mebibytes_becomes_a_dead_letter_and_delays_nothing() {
    let mut stage = Stage::set().await;
    let consumer = stage.consumer(&[]);
    stage.say_large(3 << 20).await;
    stage.say(300).await;
    stage.ends_right(&consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_throttled_table_and_an_unavailable_dead_letter_topic_only_delay_and_are_named() {
    let span = Duration::from_secs(sized("TALLY_TEST_THROTTLE", 0));
    let mut stage = Stage::set().await;
    let throttle = Rule::new(Fault::Throttle).table("likes").chance(0.8);
    stage.say(4_000).await;
    stage
        .engines
        .cluster
        .request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 40]);
    stage.emulator.set_faults(vec![throttle]);
    let consumer = stage.consumer(&[]);
    consumer.says("a dead letter is not acknowledged").await;
    consumer.says("the store is busy").await;
    eventually_after(span, "many are throttled", async || stage.emulator.stats().fired("throttle") >= 100).await;
    stage.emulator.set_faults(vec![]);
    stage.caught_up().await;
    let metrics = consumer.get("/metrics").await.unwrap().body;
    for metric in [
        r#"tally_consumer_retries_total{call="write",class="throttled"}"#,
        "tally_consumer_dead_letter_retries_total",
        r#"tally_consumer_dead_letters_total{reason="not_json"}"#,
        r#"tally_consumer_flushes_total{trigger="rows"}"#,
    ] {
        assert!(metrics.contains(metric), "{metric} in {metrics}");
    }
    stage.engines.cluster.clear_request_errors(RDKafkaApiKey::Produce);
    stage.check().await;
    consumer.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_unavailable_broker_is_waited_for_by_name() {
    let outage = Duration::from_secs(sized("TALLY_TEST_OUTAGE", 0));
    let mut stage = Stage::set().await;
    stage.engines.broker_down();
    let consumer = stage.consumer(&[]);
    consumer.says(r#""dependency":"kafka""#).await;
    assert_eq!(consumer.get("/readyz").await.unwrap().status, 503);
    eventually_after(outage, "the outage is felt", async || kafka_errors(&consumer).await > 0).await;
    assert!(consumer.is_running());
    stage.engines.broker_up();
    stage.say(500).await;
    stage.caught_up().await;
    assert_eq!(consumer.get("/readyz").await.unwrap().status, 200);
    let errors = kafka_errors(&consumer).await;
    stage.engines.broker_down();
    eventually_after(outage, "the outage is felt", async || kafka_errors(&consumer).await > errors).await;
    assert!(consumer.is_running());
    stage.engines.broker_up();
    stage.say(500).await;
    stage.ends_right(&consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_unavailable_table_only_delays_and_memory_stays_bounded() {
    let span = Duration::from_secs(sized("TALLY_TEST_OUTAGE", 0));
    let mut stage = Stage::set().await;
    let consumer = stage.consumer(&[]);
    consumer.says(READING).await;
    stage
        .emulator
        .set_faults(vec![Rule::new(Fault::Outage).table("likes"), Rule::new(Fault::Outage).table("checkpoints")]);
    stage.say_padded(BACKLOG, PADDING).await;
    // By then each partition has paused for seconds between attempts, and buffered as much as it may.
    eventually_after(span, "many are refused", async || stage.emulator.stats().fired("outage") >= REFUSED).await;
    if let Some(peak) = consumer.peak_memory() {
        println!("{} MiB at most, of a backlog of {} MiB", peak >> 20, (BACKLOG * PADDING as u64) >> 20);
        assert!(peak < MEMORY, "{peak} bytes");
    }
    assert!(!consumer.log().contains(r#""why":"lost""#), "it is still a member");
    stage.emulator.set_faults(vec![]);
    stage.ends_right(&consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn sigterm_at_any_moment_ends_the_process_with_0_within_the_grace_period() {
    let mut stage = Stage::set().await;
    stage.emulator.set_faults(faults());
    for stop in 0..sized("TALLY_TEST_STOPS", 6) {
        stage.say(300).await;
        let consumer = stage.consumer(&["--shutdown-grace", "15s"]);
        let waiting = stage.behind().await;
        match stop % 6 {
            0 => consumer.says("starting").await,
            1 => consumer.says("admin listening").await,
            2 => consumer.says("assigned").await,
            3 => consumer.says(READING).await,
            4 => eventually("something is written", async || stage.behind().await < waiting).await,
            _ => stage.caught_up().await,
        }
        assert!(consumer.stop().await.unwrap() < Duration::from_secs(15));
    }
    let last = stage.consumer(&[]);
    stage.ends_right(&last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_its_stream_is_waited_for_by_name() {
    let stage = Stage::set().await;
    let off = json!({"TableName": "likes", "StreamSpecification": {"StreamEnabled": false}});
    stage.engines.store.call("UpdateTable", off).await;
    let consumer = stage.consumer(&[]);
    consumer.says("table likes has no stream: it has to carry NEW_AND_OLD_IMAGES").await;
    consumer.stop().await.unwrap();
}
