use tally_adapters::memory::Memory;
use tally_adapters::memory::log::Broker;
use tally_core::fence::TopicId;
use tally_core::ids::ShardCount;
use tally_core::ports::{
    Gaps as _,
    log::{Outgoing, Producer},
};

use super::*;

const NOW: UnixMillis = UnixMillis(7);

struct World {
    broker: Broker,
    memory: Memory,
    fences: Fences,
}

async fn world() -> World {
    let (broker, memory) = (Broker::new(), Memory::new(NOW, 1));
    broker.create_topic("likes", 1);
    for _ in 0..5 {
        let record = Outgoing { topic: "likes", partition: Some(0), key: None, value: None, headers: &[] };
        broker.send(record).await.unwrap();
    }
    let fences = Fences {
        rows: Arc::new(memory.likes(ShardCount::DEFAULT)),
        checkpoints: Arc::new(memory.checkpoints()),
        reader: Arc::new(broker.reader("test", "likes")),
        topic: "likes".to_owned(),
    };
    World { broker, memory, fences }
}

fn partition() -> Partition {
    Partition { topic: "likes".into(), index: 0 }
}

fn reset(partition: u32, to: ResetTo) -> Reset {
    Reset { partition, to, dry_run: false }
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_refuses_what_a_reset_would() {
    let World { memory, fences, .. } = world().await;
    let fence = Fence::new(Offset(3), 2, TopicId("gone".into()));
    fences.rows.create_fence(&partition(), &fence).await.unwrap();
    fences.reset(Reset { dry_run: true, ..reset(0, ResetTo::Start) }, NOW).await.unwrap();
    assert!(fences.reset(Reset { dry_run: true, ..reset(0, ResetTo::Offset(6)) }, NOW).await.is_err());
    assert_eq!(fences.rows.fence(&partition()).await.unwrap(), Some(fence));
    assert_eq!(memory.checkpoints().gaps().await.unwrap(), []);
}

#[tokio::test]
async fn a_reset_moves_offset_and_topic_raises_cfg_and_opens_a_gap() {
    let World { broker, memory, fences } = world().await;
    let stale = Fence::new(Offset(3), 2, TopicId("gone".into()));
    fences.rows.create_fence(&partition(), &stale).await.unwrap();
    broker.trim("likes", 0, 1);
    fences.reset(reset(0, ResetTo::Start), NOW).await.unwrap();
    let log = fences.reader.logs().await.unwrap().remove(0).1;
    let moved = fences.rows.fence(&partition()).await.unwrap().unwrap();
    assert_eq!(moved, Fence::new(Offset(1), 3, log.topic));
    let gaps = memory.checkpoints().gaps().await.unwrap();
    assert_eq!(gaps.len(), 1);
    assert_eq!(gaps[0].kind, "fence_reset");
    fences.show().await.unwrap();
}

#[tokio::test]
async fn a_reset_outside_the_log_or_of_an_unknown_partition_is_refused_and_opens_no_gap() {
    let World { memory, fences, .. } = world().await;
    assert!(fences.reset(reset(0, ResetTo::Start), NOW).await.unwrap_err().to_string().contains("no fence yet"));
    let fence = Fence::new(Offset(3), 0, TopicId("t".into()));
    fences.rows.create_fence(&partition(), &fence).await.unwrap();
    assert!(fences.reset(reset(0, ResetTo::Offset(6)), NOW).await.is_err());
    assert!(fences.reset(reset(9, ResetTo::End), NOW).await.is_err());
    assert_eq!(memory.checkpoints().gaps().await.unwrap(), []);
    fences.reset(reset(0, ResetTo::Offset(5)), NOW).await.unwrap();
}

#[test]
fn a_line_says_what_a_consumer_would_do() {
    let log = Log { topic: TopicId("t".into()), start: Offset(2), end: Offset(9) };
    let fence = |offset| Fence::new(Offset(offset), 1, TopicId("t".into()));
    assert_eq!(described(4, Some(&fence(5)), &log), "4\t5\t1\t2\t9\tt\t4 behind");
    assert!(described(4, Some(&fence(1)), &log).contains("log_truncated"));
    assert!(described(4, None, &log).ends_with("not read yet"));
}
