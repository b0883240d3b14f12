use tally_adapters::memory::Memory;
use tally_adapters::memory::log::Broker;
use tally_core::definitions::Entry;
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
    Reset { partition, to, back: false, sums: None, dry_run: false }
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
    let terms = Terms { generation: 1, ..Terms::default() };
    assert_eq!(moved, Fence { terms, ..Fence::new(Offset(1), 3, log.topic) });
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

fn log(topic: &str, start: u64, end: u64) -> Log {
    Log { topic: TopicId(topic.into()), start: Offset(start), end: Offset(end) }
}

fn views() -> Definitions {
    let views = Entry::sum("views", "view", None);
    Definitions::new(&[views]).unwrap()
}

#[test]
fn a_fence_moves_back_only_where_that_is_asked_for_and_says_how_far_it_may_have_been() {
    let (log, seen) = (log("t", 2, 9), Fence::new(Offset(6), 1, TopicId("t".into())));
    let to = |to, back| {
        moved(Reset { back, ..reset(0, to) }, &seen.clone().into(), &log, &views()).map(|fences| fences.first().clone())
    };
    assert_eq!(to(ResetTo::Start, false).unwrap().offset, Offset(6), "it is past the log's start");
    assert!(to(ResetTo::Offset(3), false).unwrap_err().to_string().contains("--back"));
    let back = to(ResetTo::Offset(3), true).unwrap();
    assert_eq!((back.offset, back.terms), (Offset(3), Terms { redo: Some(Offset(9)), ..Terms::default() }));
    let further = moved(Reset { back: true, ..reset(0, ResetTo::Start) }, &back.into(), &log, &views()).unwrap();
    assert_eq!((further.first().offset, further.terms().redo), (Offset(2), Some(Offset(9))));
    let stays = to(ResetTo::Offset(6), true).unwrap();
    assert_eq!(
        (stays.offset, stays.terms.redo),
        (Offset(6), Some(Offset(9))),
        "a fence that was moved by hand goes on"
    );
    assert_eq!(to(ResetTo::End, false).unwrap(), Fence::new(Offset(9), 1, TopicId("t".into())));
}

#[test]
fn where_offsets_begin_anew_an_operator_says_what_becomes_of_sums() {
    let seen = Fence::new(Offset(6), 1, TopicId("t".into()));
    for log in [log("another", 0, 9), log("t", 0, 5)] {
        let to = |sums, defined: &Definitions| {
            moved(Reset { sums, ..reset(0, ResetTo::Start) }, &seen.clone().into(), &log, defined)
        };
        assert!(to(None, &views()).unwrap_err().to_string().contains("--sums skip"));
        let terms = |sums, defined| to(sums, &defined).unwrap().terms();
        let anew = Terms { generation: 1, ..Terms::default() };
        assert_eq!(terms(None, Definitions::likes_alone()), anew);
        assert_eq!(terms(Some(SumsAnew::Count), views()), anew);
        assert_eq!(terms(Some(SumsAnew::Skip), views()), Terms { sums_from: log.end, ..anew });
    }
}

#[test]
fn a_line_says_what_a_consumer_would_do() {
    let log = Log { topic: TopicId("t".into()), start: Offset(2), end: Offset(9) };
    let fence = |offset| Fence::new(Offset(offset), 1, TopicId("t".into()));
    assert_eq!(described(4, Some(&fence(5)), &log), "4\t5\t1\t2\t9\tt\t4 behind");
    assert!(described(4, Some(&fence(1)), &log).contains("log_truncated"));
    assert!(described(4, None, &log).ends_with("not read yet"));
}
