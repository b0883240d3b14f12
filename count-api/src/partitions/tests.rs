use tally_adapters::memory::Memory;
use tally_adapters::memory::log::Broker;
use tally_core::fence::{Fence, Offset, Partition};
use tally_core::ids::ShardCount;
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;

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

#[tokio::test]
async fn what_waits_in_a_partition_is_its_log_behind_its_fence() {
    let broker = broker([5, 7, 2]).await;
    let (reader, likes) = (broker.reader("test", "likes"), Memory::new(UnixMillis(0)).likes(ShardCount::DEFAULT));
    let logs = reader.logs().await.unwrap();
    for (index, offset) in [(0, 5), (1, 3)] {
        let partition = Partition { topic: "likes".into(), index };
        likes.create_fence(&partition, &Fence::new(Offset(offset), 0, logs[0].1.topic.clone())).await.unwrap();
    }
    assert_eq!(lags(&reader, Some(&likes)).await, Ok(vec![0, 4, 2]));
    assert_eq!(lags(&reader, None).await, Ok(vec![0, 0, 0]), "how many there are");
}
