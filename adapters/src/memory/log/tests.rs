//! Tests the stand-in for a Kafka broker in memory: a partition that a group's member gives back stays with that member
//! until another one joins.

use super::*;

async fn assigned(member: &mut Membership) -> Vec<Arc<dyn OwnedPartition>> {
    match member.next().await {
        Ok(Rebalance::Assigned(partitions)) => partitions,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_partition_given_back_unasked_stays_with_its_member_until_another_wants_it() {
    let broker = Broker::new();
    broker.create_topic("likes", 2);
    let mut one = broker.join("readers", "likes");
    drop(assigned(&mut one).await);
    tokio::select! {
        biased;
        again = one.next() => panic!("the group handed it out again by itself: {again:?}"),
        () = std::future::ready(()) => {}
    }
    let mut two = broker.join("readers", "likes");
    let indices: Vec<u32> = assigned(&mut two).await.iter().map(|owned| owned.partition().index).collect();
    assert_eq!(indices, [1]);
    drop(one);
    let left = assigned(&mut two).await;
    assert_eq!(left[0].partition().index, 0);
}
