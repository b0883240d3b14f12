use tally_adapters::dynamodb::{Checkpoints, Likes};
use tally_adapters::memory::log::Broker;
use tally_core::definitions::Entry;
use tally_core::fence::TopicId;
use tally_core::ids::{LaneCount, ShardCount};
use tally_core::ports::log::{Outgoing, Producer};
use tally_testkit::Store;

use super::*;

const NOW: UnixMillis = UnixMillis(7);

struct World {
    broker: Broker,
    changes: Changes,
    fences: Fences,
}

async fn world() -> World {
    let (broker, store) = (Broker::new(), Store::start().await);
    broker.create_topic("likes", 1);
    for _ in 0..5 {
        let record = Outgoing { topic: "likes", partition: Some(0), key: None, value: None, headers: &[] };
        broker.send(record).await.unwrap();
    }
    let fences = Fences {
        rows: Arc::new(Likes::new(&store.connection, ShardCount::DEFAULT)),
        checkpoints: Arc::new(Checkpoints::new(&store.connection)),
        reader: Arc::new(broker.reader("test", "likes")),
        topic: "likes".to_owned(),
    };
    World { broker, changes: Changes::new(&store.connection), fences }
}

/// What the open losses say.
async fn losses(changes: &Changes) -> Vec<String> {
    let losses = changes.losses().await.unwrap();
    losses.open().map(|(_, loss)| format!("{}: {}", loss.kind, loss.what)).collect()
}

fn partition() -> Partition {
    Partition { topic: "likes".into(), index: 0 }
}

fn reset(partition: u32, to: ResetTo) -> Reset {
    Reset { partition: Some(partition), to, back: false, sums: None, dry_run: false }
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_refuses_what_a_reset_would() {
    let World { changes, fences, .. } = world().await;
    let fence = Fence::new(Offset(3), 2, TopicId("gone".into()));
    fences.rows.create_fence(&partition(), &fence).await.unwrap();
    fences.reset(Reset { dry_run: true, ..reset(0, ResetTo::Start) }, &changes, NOW).await.unwrap();
    assert!(fences.reset(Reset { dry_run: true, ..reset(0, ResetTo::Offset(6)) }, &changes, NOW).await.is_err());
    assert_eq!(fences.rows.fence(&partition()).await.unwrap(), Some(fence));
    assert_eq!(losses(&changes).await, [""; 0]);
}

#[tokio::test]
async fn a_reset_moves_offset_and_topic_raises_cfg_and_opens_a_loss() {
    let World { broker, changes, fences } = world().await;
    let stale = Fence::new(Offset(3), 2, TopicId("gone".into()));
    fences.rows.create_fence(&partition(), &stale).await.unwrap();
    broker.trim("likes", 0, 1);
    fences.reset(reset(0, ResetTo::Start), &changes, NOW).await.unwrap();
    let log = fences.reader.logs().await.unwrap().remove(0).1;
    let moved = fences.rows.fence(&partition()).await.unwrap().unwrap();
    let terms = Terms { generation: 1, ..Terms::default() };
    assert_eq!(moved, Fence { terms, ..Fence::new(Offset(1), 3, log.topic) });
    assert_eq!(losses(&changes).await, ["fence_reset: the fence of likes/0 was moved by hand"]);
    fences.show().await.unwrap();
}

#[tokio::test]
async fn a_reset_outside_the_log_or_of_an_unknown_partition_is_refused_and_opens_no_loss() {
    let World { changes, fences, .. } = world().await;
    assert!(
        fences.reset(reset(0, ResetTo::Start), &changes, NOW).await.unwrap_err().to_string().contains("no fence yet")
    );
    let fence = Fence::new(Offset(3), 0, TopicId("t".into()));
    fences.rows.create_fence(&partition(), &fence).await.unwrap();
    assert!(fences.reset(reset(0, ResetTo::Offset(6)), &changes, NOW).await.is_err());
    assert!(fences.reset(reset(9, ResetTo::End), &changes, NOW).await.is_err());
    assert_eq!(losses(&changes).await, [""; 0]);
    fences.reset(reset(0, ResetTo::Offset(5)), &changes, NOW).await.unwrap();
}

/// The fences of two lanes.
fn two(offsets: [u64; 2]) -> fence::Fences {
    let first = fence::Fences::from(Fence::new(Offset(0), 1, TopicId("t".into())));
    let terms = Terms { lanes: LaneCount::new(2).unwrap(), ..Terms::default() };
    let level = first.level(Offset(0), terms);
    level.reset(&TopicId("t".into()), terms, |fence| Offset(offsets[fence.lane.index()]))
}

#[test]
fn no_lane_is_moved_back_unless_that_is_asked_for_and_then_none_is_moved_forward() {
    let (log, seen) = (log("t", 4, 20), two([3, 9]));
    let to = |to, back| moved(Reset { back, ..reset(0, to) }, &seen, &log, &views());
    let offsets = |fences: fence::Fences| fences.iter().map(|fence| fence.offset.0).collect::<Vec<_>>();
    assert_eq!(
        offsets(to(ResetTo::Start, false).unwrap()),
        [4, 9],
        "each has the greater of its own and the log's start"
    );
    assert_eq!(offsets(to(ResetTo::End, false).unwrap()), [20, 20]);
    assert_eq!(offsets(to(ResetTo::Offset(7), false).unwrap()), [7, 9]);
    let back = to(ResetTo::Offset(7), true).unwrap();
    assert_eq!((back.terms().redo, back.lanes().get()), (Some(Offset(20)), 2));
    assert_eq!(offsets(back), [3, 7]);
    let later = two([8, 9]);
    let refused = moved(reset(0, ResetTo::Offset(7)), &later, &log, &views());
    assert!(refused.unwrap_err().to_string().contains("--back"));
}

#[tokio::test]
async fn all_partitions_are_moved_to_a_time_or_none_is() {
    let World { broker, changes, fences } = world().await;
    let partition = partition();
    let all = Reset { partition: None, ..reset(0, ResetTo::Time(UnixMillis(u64::MAX))) };
    assert!(fences.reset(all, &changes, NOW).await.is_err(), "one has no fence");
    let log = fences.reader.logs().await.unwrap().remove(0).1;
    fences.rows.create_fence(&partition, &Fence::new(Offset(1), 0, log.topic.clone())).await.unwrap();
    let at = fences.reader.read(&partition, Offset(3), log.end).await.unwrap().get(0).unwrap().at;
    let first = fences.reader.offset_at(&partition, at).await.unwrap().unwrap();
    assert!(first <= Offset(3), "the first of that time");
    fences.reset(all, &changes, NOW).await.unwrap();
    assert_eq!(fences.rows.fence(&partition).await.unwrap().unwrap().offset, log.end, "nothing is that late");
    assert_eq!(losses(&changes).await.len(), 1);
    drop(broker);
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

#[tokio::test]
async fn a_paused_fence_is_not_reset_and_is_what_it_was_once_it_is_resumed() {
    let World { changes, fences, .. } = world().await;
    let topic = fences.reader.logs().await.unwrap().remove(0).1.topic;
    fences.rows.create_fence(&partition(), &Fence::new(Offset(3), 2, topic.clone())).await.unwrap();
    for _ in 0..2 {
        fences.switch(&partition(), Going::Paused).await.unwrap();
    }
    let refused = fences.reset(reset(0, ResetTo::End), &changes, NOW).await.unwrap_err();
    assert!(format!("{refused:#}").ends_with("it is paused: resume it first"), "{refused:#}");
    assert_eq!(fences.standing().await.unwrap()[0].alarm(), Some(Alarm::Paused));
    fences.switch(&partition(), Going::Resumed).await.unwrap();
    assert_eq!(fences.rows.fence(&partition()).await.unwrap(), Some(Fence::new(Offset(3), 4, topic)));
}
