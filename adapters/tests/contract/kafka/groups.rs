//! Tests that every partition has one owner while members of a Kafka consumer group join and leave, with the log in
//! memory and with real brokers.

use std::collections::BTreeSet;

use futures_util::future::select_all;
use tally_core::ports::TopicReader as _;
use tally_core::topic::{Offset, Partition};

use super::engine::{Engine, Librdkafka, PARTITIONS, PATIENCE, Twin};
use super::fill;
use super::member::Member;

/// Each partition has one owner, which reads it from its first record on, and no member has more than its share.
async fn share(members: &mut [Member], partitions: usize) {
    let fair = partitions / members.len();
    let shared = |members: &[Member]| {
        let owned = members.iter().map(|member| member.owned.len());
        owned.clone().sum::<usize>() == partitions && owned.clone().all(|owned| (fair..=fair + 1).contains(&owned))
    };
    let settled = tokio::time::timeout(PATIENCE, async {
        while !shared(members) {
            select_all(members.iter_mut().map(|member| Box::pin(member.step()))).await;
        }
    });
    settled.await.expect("a rebalance in time");
    let owned: BTreeSet<u32> = members.iter().flat_map(|member| member.owned.keys().copied()).collect();
    assert_eq!(owned.len(), partitions, "no partition has two owners");
    for member in members {
        for index in member.owned.keys().copied().collect::<Vec<_>>() {
            member.start(index, 0).await;
            assert_eq!(member.read(index, 2).await, [0, 1]);
        }
    }
}

/// Three members join and leave, and each reads its share of 64 partitions.
async fn come_and_go(engine: &dyn Engine) {
    for index in 0..64 {
        fill(engine, index, 2).await;
    }
    let (all, mut members) = (64, Vec::new());
    for _ in 0..3 {
        members.push(Member::new(engine));
        share(&mut members, all).await;
    }
    while let Some(leaver) = members.pop().filter(|_| !members.is_empty()) {
        tokio::join!(leaver.leave(), share(&mut members, all));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_that_join_and_leave_each_read_their_share_of_64_partitions() {
    come_and_go(&Twin::new(64)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the brokers that TALLY_TEST_BROKERS names; localstack/engines test runs it"]
async fn three_members_of_a_kafka_group_each_read_their_share_of_64_partitions() {
    come_and_go(&Librdkafka::elsewhere(64).await).await;
}

/// The in-process cluster cannot describe groups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the brokers that TALLY_TEST_BROKERS names; localstack/engines test runs it"]
async fn a_group_can_be_described_and_its_offsets_set_once_it_has_no_members() {
    let engine = Librdkafka::elsewhere(PARTITIONS).await;
    let reader = engine.reader_of_members();
    assert_eq!(reader.members().await, Ok(vec![]));
    let one = Member::alone(&engine).await;
    let members = reader.members().await.unwrap();
    assert!(members.len() == 1 && members[0].host == "127.0.0.1", "{members:?}");
    assert_eq!(members[0].partitions, [0, 1, 2, 3]);
    let partition = Partition { topic: engine.topic().into(), index: 2 };
    assert!(reader.mark(&partition, Offset(0)).await.is_err(), "its members alone commit");
    one.leave().await;
    assert_eq!(reader.members().await, Ok(vec![]));
    assert_eq!(reader.mark(&partition, Offset(0)).await, Ok(()));
}
