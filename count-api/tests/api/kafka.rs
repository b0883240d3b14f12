//! Writes likes and unlikes over HTTP to a real Kafka: librdkafka's in-process cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tally_adapters::kafka;
use tally_core::definitions::Definitions;
use tally_core::event::{Deed, decode, partition_of};
use tally_count_api::Config;
use tally_testkit::records;

use crate::harness::{Api, ask, broker, eventually};

const PARTITIONS: u32 = 3;

async fn api(kafka: &kafka::Embedded, config: Config) -> Api {
    let producer = kafka::Producer::new(&kafka::Settings::plaintext(kafka.bootstrap())).unwrap();
    Api::counting_over(config, broker(), Arc::new(producer)).await
}

fn writing(write_budget: Duration) -> Config {
    Config { write_budget, ..Config::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_is_in_kafka_where_every_producer_would_have_put_it() {
    let kafka = kafka::Embedded::start(&[("likes", PARTITIONS)]).unwrap();
    let api = api(&kafka, Config { write_rate: 0, ..writing(Duration::from_secs(30)) }).await;
    let accepted = join_all((0..40).map(async |n| {
        let (method, present) = if n % 3 == 0 { ("DELETE", false) } else { ("PUT", true) };
        let answer = ask(api.address, method, &format!("/v1/posts/p%23{}/likes/u-{n}", n % 7)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        (format!("p#{}", n % 7), format!("u-{n}"), present)
    }));
    let accepted: BTreeSet<_> = accepted.await.into_iter().collect();
    let reader = kafka::TopicReader::new(&kafka::Settings::plaintext(kafka.bootstrap()), "test", "likes").unwrap();
    let mut found = BTreeSet::new();
    for (partition, run) in records(&reader).await.unwrap() {
        for record in run.iter() {
            let event = decode(record, &Definitions::likes_alone()).unwrap();
            let key = event.subject().as_bytes();
            assert_eq!(record.key, Some(key));
            assert_eq!(record.at, event.at, "the time of the API's clock, which the store corrects");
            assert_eq!(partition, partition_of(key, PARTITIONS), "{event:?}");
            let Deed::Member { id, present } = &event.deed else { panic!("{event:?}") };
            found.insert((event.subject().to_owned(), id.clone().into_owned(), *present));
        }
    }
    assert_eq!(found, accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_broker_nothing_is_accepted_and_the_answer_says_when_to_come_back() {
    let kafka = kafka::Embedded::start(&[("likes", PARTITIONS)]).unwrap();
    let api = api(&kafka, writing(Duration::from_millis(500))).await;
    let put = async || ask(api.address, "PUT", "/v1/posts/p/likes/u").await;
    eventually("it is accepted while the broker is there", async || put().await.status == 202).await;
    drop(kafka);
    let answer = put().await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "broker-away"));
    assert_eq!(answer.header("retry-after"), Some("1"));
}
