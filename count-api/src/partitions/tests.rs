//! Tests how the API follows the topics that events are written to: how many records wait in each partition, and that
//! the process is not ready while a topic is missing.

use tally_adapters::memory::log::Broker;
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::register::{Kept, Topic};
use tally_core::topic::{Offset, TopicId};
use tally_service::Host;
use tally_testkit::{BEGAN, Store};

use super::*;

async fn broker(sent: [u32; 3]) -> Broker {
    let broker = Broker::new();
    broker.create_topic("likes", 3);
    for (partition, sent) in (0..).zip(sent) {
        for _ in 0..sent {
            let record =
                Outgoing { topic: "likes", partition: Some(partition), key: None, value: Some(b"{}"), headers: &[] };
            broker.send(record).await.unwrap();
        }
    }
    broker
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_a_partition_is_its_log_behind_what_is_finished() {
    let (broker, store) = (broker([5, 7, 2]).await, Store::start().await);
    let (reader, claims) = (broker.reader("test", "likes"), Claims::new(&store.connection, Clock::starting_at(BEGAN)));
    let logs = reader.logs().await.unwrap();
    let all = |policy| lags("likes", &reader, policy);
    assert_eq!(all(Some(&claims)).await, Ok(vec![5, 7, 2]), "no consumer has begun");
    for (index, safe, topic) in [(0, 5, &logs[0].1.topic), (1, 3, &logs[0].1.topic), (2, 2, &TopicId("before".into()))]
    {
        let partition = Partition { topic: "likes".into(), index };
        let (claim, _) = claims.raise(&partition).await.unwrap();
        let kept = Kept { at: BEGAN, ..Kept::first(&Topic::first(topic.clone(), Vec::new()), Offset(safe)) };
        assert!(claims.keep(&partition, claim.n, &kept).await.unwrap().is_some());
    }
    assert_eq!(all(Some(&claims)).await, Ok(vec![0, 4, 2]), "offsets of another topic say nothing");
    assert_eq!(all(None).await, Ok(vec![0, 0, 0]), "how many there are");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_events_are_written_to_and_that_is_missing_is_named_and_the_process_is_not_ready() {
    let (broker, store) = (broker([0; 3]).await, Store::start().await);
    let host = Host::new("test").with_clock(Clock::starting_at(BEGAN));
    let definitions = crate::definitions::FollowDefinitions::begin(&store.connection, "likes", &host).await.unwrap();
    let reading = broker.clone();
    let mut follow = FollowPartitions {
        topics: Arc::new(move |topic: &str| Ok(Arc::new(reading.reader("test", topic)) as Arc<dyn TopicReader>)),
        claims: Claims::new(&store.connection, host.clock()),
        spreading: Spreading::new(SumPolicy::Post),
        defined: definitions.defined(),
        topic: "likes".to_owned(),
        clock: host.clock(),
        readiness: host.readiness().clone(),
        readers: BTreeMap::new(),
    };
    follow.look().await;
    assert!(host.readiness().report().ready, "{:?}", host.readiness().report());
    // A topic without partitions is none.
    broker.create_topic("likes", 0);
    follow.look().await;
    let report = host.readiness().report();
    assert!(
        !report.ready && format!("{report:?}").contains("there is no topic `likes`, which is for events"),
        "{report:?}"
    );
    broker.set_down(true);
    broker.create_topic("likes", 3);
    follow.look().await;
    assert!(!host.readiness().report().ready, "nothing is seen");
    broker.set_down(false);
    follow.look().await;
    assert!(host.readiness().report().ready);
}
