//! Tests to which partitions the API sends the events of a busy sum. Its choice does not change the count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::kafka::Spreading;
use tally_core::event::{Deed, decode};
use tally_core::ports::TopicReader;
use tally_core::spread::SumPolicy;
use tally_count_api::{App, Config, Topics};
use tally_testkit::records;

use crate::harness::{Api, WRITING, broker, counter_id, eventually, post, several};

/// Returns the amounts of the sum in each partition.
async fn amounts(api: &Api) -> BTreeMap<u32, i64> {
    let mut found = BTreeMap::new();
    for (partition, run) in records(&api.broker.reader("test", "likes")).await.unwrap() {
        for record in run.iter() {
            let event = decode(record, &several().said_in("likes")).unwrap();
            let Deed::Amount(n) = event.deed else { panic!("{event:?}") };
            *found.entry(partition).or_default() += n;
        }
    }
    found
}

async fn increment(api: &Api, times: usize) {
    for _ in 0..times {
        let answer = post(api.address, "/v1/posts/p/counters/views/events", r#"{"action":"increment","n":25}"#).await;
        assert_eq!(answer.status.as_u16(), 202);
    }
}

/// When a test's other sender is busy: long after the API's own clock, so that nothing of the API's ends a second of
/// it.
const LATER: Duration = Duration::from_secs(1_000_000);

/// Makes the sum busy: a second of over 10,000 events, and the first event of the next second.
fn busy(spreading: &Spreading) {
    let counter = counter_id("p", "views");
    for _ in 0..10_002 {
        spreading.partition("likes", &counter, LATER, 0);
    }
    spreading.partition("likes", &counter, LATER + Duration::from_secs(1), 0);
}

#[tokio::test]
async fn a_busy_sums_events_go_to_several_partitions_and_a_quiet_ones_where_its_key_says() {
    let spreading = Spreading::new(SumPolicy::RoundRobin);
    let api = Api::wired(Config::default(), WRITING, |app| App { spreading: spreading.clone(), ..app }).await;
    increment(&api, 2).await;
    assert_eq!(amounts(&api).await.len(), 1, "nothing is known of the partitions");
    spreading.seen("likes", &[0; 4]);
    increment(&api, 2).await;
    assert_eq!(amounts(&api).await.into_values().collect::<Vec<_>>(), [100]);
    busy(&spreading);
    increment(&api, 4).await;
    let mut amounts: Vec<i64> = amounts(&api).await.into_values().collect();
    amounts.sort_unstable();
    assert_eq!(amounts, [50, 150]);
}

#[tokio::test]
async fn an_api_looks_at_the_partitions_by_itself() {
    let spreading = Spreading::new(SumPolicy::LeastLag);
    let broker = broker();
    let topics: Topics =
        Arc::new(move |topic: &str| Ok(Arc::new(broker.reader("test", topic)) as Arc<dyn TopicReader>));
    let _api = Api::wired(Config::default(), WRITING, |app| App {
        spreading: spreading.clone(),
        partitions: Some(topics),
        ..app
    })
    .await;
    eventually("the partitions are seen", || async {
        busy(&spreading);
        spreading.partition("likes", &counter_id("p", "views"), LATER + Duration::from_secs(1), 0).is_some()
    })
    .await;
}
