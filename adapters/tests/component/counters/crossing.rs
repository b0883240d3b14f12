//! Tests crossings, the updates that bring a counter to a milestone: the counter and the record of who brought it there
//! are written together, or neither is.

use tally_adapters::dynamodb::Recounts;
use tally_adapters::dynamodb::counters::{Counters, Crossed, Written};
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::ids::MemberKey;
use tally_core::milestone::{Milestone, Winner};
use tally_emulator::{Fault as Injected, Rule};
use tally_testkit::{BEGAN, Store};

use super::{at, gained, likes, now, shard, start, stored, update, write};

fn milestone(n: i64, member: &str) -> Milestone {
    let by = Winner::Member(MemberKey::new(member).unwrap());
    Milestone { n, by, at: BEGAN, lag: 250, version: 17, exact: true, skipped: 0 }
}

/// The recorded milestones of the post, the greatest first.
async fn recorded(store: &Store, post: &str) -> Vec<Milestone> {
    let recounts = Recounts::new(&store.connection);
    let found = recounts.milestones(&likes(post), 100).await.unwrap();
    assert!(found.iter().all(|recorded| recorded.digest == recorded.milestone.digest(&likes(post))), "{found:?}");
    found.into_iter().map(|recorded| recorded.milestone).collect()
}

#[tokio::test(start_paused = true)]
async fn a_crossing_writes_the_counter_and_its_records_or_neither() {
    let (store, counters) = start().await;
    let first = gained(None, 3, 7, 10);
    let reached = [milestone(5, "u-5"), milestone(7, "u-7")];
    assert_eq!(counters.cross(&update("p", None, &first), &reached).await, Ok(Crossed::Stored));
    assert_eq!(now(&counters, "p").await, Some(first.clone()));
    let mut upwards = recorded(&store, "p").await;
    upwards.reverse();
    assert_eq!(upwards, reached);

    let mut second = gained(Some(&first), 4, 3, 11);
    (second.gap, second.doubt, second.corrections) = (Some(at(9)), [shard(4)].into(), 1);
    let crossing = update("p", Some(&first), &second);
    for fault in [Injected::Throttle, Injected::Conflict, Injected::Outage] {
        store.faults([Rule::new(fault).on("TransactWriteItems").nth(1)]);
        assert!(counters.cross(&crossing, &[milestone(10, "u-10")]).await.unwrap_err().is_retryable());
    }
    assert_eq!((now(&counters, "p").await, recorded(&store, "p").await.len()), (Some(first), 2));
    assert_eq!(counters.cross(&crossing, &[milestone(10, "u-10")]).await, Ok(Crossed::Stored));
    assert_eq!((now(&counters, "p").await, recorded(&store, "p").await.len()), (Some(second), 3));
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_has_changed_refuses_the_crossing_and_no_record_is_written() {
    let (store, counters) = start().await;
    let before = stored(&counters, "p").await;
    let other = gained(Some(&before), 4, 1, 12);
    assert_eq!(write(&counters, &update("p", Some(&before), &other)).await, Written::Stored);
    let reached = [milestone(8, "u-8")];
    let late = update("p", Some(&before), &gained(Some(&before), 3, 1, 12));
    assert_eq!(counters.cross(&late, &reached).await, Ok(Crossed::Refused(Some(other.clone()))));
    assert_eq!(counters.cross(&update("p", None, &late.after), &reached).await, Ok(Crossed::Refused(Some(other))));
    assert_eq!(counters.cross(&update("q", Some(&before), &late.after), &reached).await, Ok(Crossed::Refused(None)));
    assert_eq!(recorded(&store, "p").await, []);
}

#[tokio::test(start_paused = true)]
async fn an_existing_record_refuses_the_crossing_and_the_counter_is_then_written_alone() {
    let (store, counters) = start().await;
    let first = milestone(7, "first");
    let crossing = update("p", None, &gained(None, 3, 7, 10));
    assert_eq!(counters.cross(&crossing, std::slice::from_ref(&first)).await, Ok(Crossed::Stored));
    let before = now(&counters, "p").await.unwrap();
    let after = gained(Some(&before), 3, 3, 11);
    let crossing = update("p", Some(&before), &after);
    let reached = [milestone(7, "second"), milestone(10, "u-10")];
    assert_eq!(counters.cross(&crossing, &reached).await, Ok(Crossed::Recorded(vec![7])));
    assert_eq!((now(&counters, "p").await, recorded(&store, "p").await), (Some(before), vec![first.clone()]));
    assert_eq!(counters.cross(&crossing, &reached[1..]).await, Ok(Crossed::Stored));
    assert_eq!(recorded(&store, "p").await, [reached[1].clone(), first]);
}

#[tokio::test(start_paused = true)]
async fn a_crossing_can_change_a_hundred_shards_and_refuses_more_before_it_is_sent() {
    let (store, counters) = start().await;
    let mut sparse = gained(None, 0, 1, 1);
    sparse.corrections = 1;
    assert_eq!(write(&counters, &update("p", None, &sparse)).await, Written::Stored);
    // Long names without parts need the most room.
    let wide = |shards: u16| (0..shards).fold(sparse.clone(), |counter, n| gained(Some(&counter), 255 - n, 1, 2));
    let mut most: Counter = wide(u16::try_from(Counters::SHARDS_CROSSED).unwrap());
    (most.gap, most.doubt, most.corrections) = (Some(at(1)), [shard(4)].into(), 2);
    let reached = [milestone(100, "u-100")];
    let more = counters.cross(&update("p", Some(&sparse), &wide(101)), &reached).await;
    assert!(matches!(&more, Err(Fault::Poison(message)) if message.contains("101 shards, 100 at most")), "{more:?}");
    assert_eq!(store.requests("TransactWriteItems"), 0);
    assert_eq!(counters.cross(&update("p", Some(&sparse), &most), &reached).await, Ok(Crossed::Stored));
}
