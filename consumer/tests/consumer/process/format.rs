//! A deployment in a format that the consumer does not know: the consumer does not start, and stops if the format changes.

use tally_testkit::eventually;

use super::stage::{READING, Stage};

const NAMED: &str = "the deployment is written in format 7, this build knows 2: see docs/operate.md";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_unknown_format_prevents_the_start_and_a_later_one_ends_the_process() {
    let mut stage = Stage::set().await;
    let one = stage.consumer(&[]);
    one.says(READING).await;
    stage.write_in("7").await;
    assert_eq!(one.code().await, Some(78));
    let two = stage.consumer(&[]);
    assert_eq!(two.code().await, Some(78));
    for consumer in [&one, &two] {
        assert_eq!(consumer.log().matches(NAMED).count(), 1, "{}", consumer.log());
    }
    stage.write_in("2").await;
    stage.say(300).await;
    let three = stage.consumer(&[]);
    stage.caught_up().await;
    stage.check().await;
    three.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_store_that_does_not_answer_about_the_format_ends_nothing() {
    let stage = Stage::set().await;
    let consumer = stage.consumer(&[]);
    consumer.says(READING).await;
    let refused = tally_emulator::Rule::new(tally_emulator::Fault::Throttle).on("GetItem");
    stage.emulator.set_faults(vec![refused]);
    // The client makes three attempts for each check.
    eventually("several looks have failed", async || stage.emulator.stats().fired("throttle") >= 9).await;
    stage.emulator.set_faults(vec![]);
    consumer.stop().await.unwrap();
}
