//! Tests what is stored for each shard of the likes table's DynamoDB stream: how far it is in the log of changes, and
//! the lease of the relay that copies it there.

use tally_adapters::dynamodb::changes::{Changes, StoredShard};
use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShard};
use tally_core::relay::Fed;
use tally_core::shards::{Lease, Worker};
use tally_core::time::UnixMillis;
use tally_emulator::{Fault as Injected, Rule};

use super::start;

fn shard(id: &str) -> StreamShard {
    StreamShard::new(&label(), &id.into())
}

fn label() -> StreamLabel {
    "2026-01-01T00:00:00.000".into()
}

fn fed(to: Option<u64>, at: u64) -> Fed {
    Fed { to: to.map(Into::into), at: UnixMillis(at) }
}

async fn stored(changes: &Changes, id: &str) -> StoredShard {
    let shards = changes.shards(&label()).await.unwrap();
    shards.into_iter().find(|stored| stored.shard == shard(id)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_shard_is_created_once_and_only_found_under_its_stream() {
    let (store, changes) = start().await;
    let begun = StoredShard { shard: shard("a"), parent: None, fed: fed(None, 7), closed: None, lease: None };
    assert_eq!(changes.begin(&shard("a"), None, fed(None, 7)).await, Ok(begun.clone()));
    assert_eq!(changes.begin(&shard("a"), Some(&shard("x")), fed(Some(9), 9)).await, Ok(begun.clone()), "it stays");
    store.faults([Rule::new(Injected::DropReply).on("PutItem").nth(1)]);
    assert!(changes.begin(&shard("b"), Some(&shard("a")), fed(Some(3), 8)).await.is_err());
    let child = changes.begin(&shard("b"), Some(&shard("a")), fed(Some(3), 8)).await.unwrap();
    assert_eq!((&child.parent, child.fed), (&Some(shard("a")), fed(Some(3), 8)));
    let later = StreamShard::new(&"2026-01-01T00:00:00.0001".into(), &"c".into());
    changes.begin(&later, None, Fed::default()).await.unwrap();
    assert_eq!(changes.shards(&label()).await, Ok(vec![begun, child]));
    assert_eq!(changes.shards(&"2025".into()).await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_position_and_the_time_of_a_stream_shard_only_move_forward() {
    let (store, changes) = start().await;
    changes.begin(&shard("a"), None, fed(None, 5)).await.unwrap();
    for (given, then) in [
        (fed(None, 4), fed(None, 5)),
        (fed(None, 6), fed(None, 6)),
        (fed(Some(10), 7), fed(Some(10), 7)),
        (fed(Some(10), 7), fed(Some(10), 7)),
        (fed(None, 8), fed(Some(10), 8)),
        (fed(Some(9), 9), fed(Some(10), 9)),
        (fed(Some(12), 3), fed(Some(12), 9)),
        (fed(Some(11), 2), fed(Some(12), 9)),
        (fed(Some(1_000), 10), fed(Some(1_000), 10)),
    ] {
        assert_eq!(changes.store_fed(&shard("a"), given).await, Ok(then), "{given:?}");
        assert_eq!(stored(&changes, "a").await.fed, then, "{given:?}");
    }
    store.faults([Rule::new(Injected::DropReply).on("UpdateItem").nth(1)]);
    assert!(changes.store_fed(&shard("a"), fed(Some(1_001), 11)).await.is_err());
    assert_eq!(changes.store_fed(&shard("a"), fed(Some(1_001), 11)).await, Ok(fed(Some(1_001), 11)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_shard_that_is_not_stored_cannot_be_fed_leased_or_closed() {
    let (_store, changes) = start().await;
    let worker = Worker("w-1".into());
    assert!(matches!(changes.store_fed(&shard("a"), fed(Some(1), 1)).await, Err(Fault::Fatal(_))));
    assert!(matches!(changes.lease(&shard("a"), &worker, None).await, Err(Fault::Fatal(_))));
    let seen = Lease { holder: worker.clone(), beat: 1 };
    assert!(matches!(changes.lease(&shard("a"), &worker, Some(&seen)).await, Err(Fault::Fatal(_))));
    changes.release(&shard("a"), &worker).await.unwrap();
    changes.close(&shard("a"), UnixMillis(9)).await.unwrap();
    assert_eq!(changes.shards(&label()).await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_closed_stream_shard_stays_closed_until_it_is_forgotten() {
    let (_store, changes) = start().await;
    changes.begin(&shard("a"), None, fed(Some(1), 5)).await.unwrap();
    changes.forget(&shard("a")).await.unwrap();
    assert_eq!(stored(&changes, "a").await.closed, None, "what is not closed is not forgotten");
    for at in [9, 10] {
        changes.close(&shard("a"), UnixMillis(at)).await.unwrap();
        assert_eq!(stored(&changes, "a").await.closed, Some(UnixMillis(9)));
    }
    for _ in 0..2 {
        changes.forget(&shard("a")).await.unwrap();
        changes.close(&shard("a"), UnixMillis(11)).await.unwrap();
        assert_eq!(changes.shards(&label()).await, Ok(vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_belongs_to_one_worker_until_it_is_no_longer_renewed_or_is_returned() {
    let (store, changes) = start().await;
    let (one, other) = (Worker("w-1".into()), Worker("w-2".into()));
    changes.begin(&shard("a"), None, Fed::default()).await.unwrap();
    let lease = |holder: &Worker, beat| Some(Lease { holder: holder.clone(), beat });
    assert_eq!(changes.lease(&shard("a"), &one, None).await, Ok(lease(&one, 1)));
    assert_eq!(changes.lease(&shard("a"), &other, None).await, Ok(None));
    assert_eq!(changes.lease(&shard("a"), &one, lease(&one, 1).as_ref()).await, Ok(lease(&one, 2)));
    assert_eq!(changes.lease(&shard("a"), &other, lease(&one, 1).as_ref()).await, Ok(None), "it beats");
    assert_eq!(changes.lease(&shard("a"), &other, lease(&one, 2).as_ref()).await, Ok(lease(&other, 3)));
    assert_eq!(changes.lease(&shard("a"), &one, lease(&one, 2).as_ref()).await, Ok(None));

    store.faults([Rule::new(Injected::DropReply).on("UpdateItem").nth(1)]);
    assert!(changes.lease(&shard("a"), &other, lease(&other, 3).as_ref()).await.is_err());
    let again = changes.lease(&shard("a"), &other, lease(&other, 3).as_ref()).await;
    assert_eq!(again, Ok(lease(&other, 4)), "it was renewed");
    changes.release(&shard("a"), &one).await.unwrap();
    assert_eq!(stored(&changes, "a").await.lease, lease(&other, 4), "only its holder gives it back");
    for _ in 0..2 {
        changes.release(&shard("a"), &other).await.unwrap();
        assert_eq!(stored(&changes, "a").await.lease, None);
    }
    assert_eq!(changes.lease(&shard("a"), &one, None).await, Ok(lease(&one, 5)), "no two leases look alike");
}
