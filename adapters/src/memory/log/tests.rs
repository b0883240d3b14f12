//! What the broker in memory does with a partition that its owner has given back, and with commits of a member from
//! which it was taken.

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

#[tokio::test]
async fn a_commit_is_taken_while_a_partition_is_given_back_and_refused_once_a_session_time_out_took_it_away() {
    let broker = Broker::new();
    broker.create_topic("likes", 2);
    let committed = async || {
        let reader = broker.reader("readers", "likes");
        let partition = Partition { topic: "likes".into(), index: 1 };
        log::TopicReader::bookmark(&reader, &partition).await.unwrap()
    };
    let mut one = broker.join("readers", "likes");
    let mut before = assigned(&mut one).await;
    let mut two = broker.join("readers", "likes");
    let asked_back = before.pop().unwrap();
    assert_eq!(asked_back.revoked().await, Revocation::Revoked);
    asked_back.finished(Offset(3));
    assert_eq!(committed().await, Some(Offset(3)));
    broker.expire("readers");
    asked_back.finished(Offset(2));
    assert_eq!(committed().await, Some(Offset(3)));
    assert_eq!(before[0].revoked().await, Revocation::Lost);
    assert_eq!(assigned(&mut two).await[0].partition().index, 0, "another member has it");
}
