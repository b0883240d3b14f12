//! What is stored of the ledger of changes.

use tally_core::fault::Fault;
use tally_core::ids::{Ordinal, StreamLabel, StreamShardId, StreamTable};
use tally_core::ledger::{Fed, Lapse, Seconds};
use tally_core::ports::{ChangesTerms, Checkpoints};
use tally_core::time::UnixMillis;

/// Of a deployment that was created.
pub(crate) async fn contract(port: &dyn Checkpoints) {
    the_first_terms_stand(port).await;
    how_far_a_shard_is_fed_moves_forward_only_and_by_nothing_else(port).await;
    a_shard_from_before_is_adopted_once(port).await;
    lapses_of_a_stream_shard_are_one_that_grows(port).await;
}

async fn the_first_terms_stand(port: &dyn Checkpoints) {
    assert_eq!(port.changes().await, Ok(None));
    let terms = ChangesTerms { partitions: 12, from: Ordinal(3), since: None };
    assert_eq!(port.begin_changes(12, Ordinal(3)).await, Ok(terms));
    assert_eq!(port.begin_changes(24, Ordinal(9)).await, Ok(terms));
    port.changes_complete(UnixMillis(5)).await.unwrap();
    port.changes_complete(UnixMillis(9)).await.unwrap();
    assert_eq!(port.changes().await, Ok(Some(ChangesTerms { since: Some(UnixMillis(5)), ..terms })));
}

async fn numbered(port: &dyn Checkpoints, table: &'static str) -> (StreamLabel, StreamShardId) {
    let (label, shard) = (StreamLabel::new(StreamTable::named(table), "1"), "s".into());
    port.number(&label, &shard, None, UnixMillis(1)).await.unwrap();
    (label, shard)
}

async fn fed(port: &dyn Checkpoints, label: &StreamLabel) -> Fed {
    port.shards(label).await.unwrap()[0].fed
}

async fn how_far_a_shard_is_fed_moves_forward_only_and_by_nothing_else(port: &dyn Checkpoints) {
    let (label, shard) = numbered(port, "fed").await;
    port.advance(&label, &shard, 7.into(), UnixMillis(70)).await.unwrap();
    port.refresh(&label, &shard, UnixMillis(80)).await.unwrap();
    assert_eq!(fed(port, &label).await, Fed::default(), "one that does not feed says nothing of it");
    for (to, at) in [(5u64, 50), (3, 90), (5, 90)] {
        port.fed(&label, &shard, to.into(), UnixMillis(at)).await.unwrap();
        let stands = Fed { sequence: Some(5.into()), at: Some(UnixMillis(50)), end: false };
        assert_eq!(fed(port, &label).await, stands, "{to}");
    }
    for at in [60, 40, 60] {
        port.fed_at(&label, &shard, UnixMillis(at)).await.unwrap();
        assert_eq!(fed(port, &label).await.at, Some(UnixMillis(60)), "{at}");
    }
    port.fed(&label, &shard, 6.into(), UnixMillis(55)).await.unwrap();
    let stands = Fed { sequence: Some(6.into()), at: Some(UnixMillis(60)), end: false };
    assert_eq!(fed(port, &label).await, stands, "the later time stays");
    port.close(&label, &shard, UnixMillis(100)).await.unwrap();
    assert_eq!(fed(port, &label).await, stands);
    for _ in 0..2 {
        port.fed_end(&label, &shard, UnixMillis(70)).await.unwrap();
        assert_eq!(fed(port, &label).await, Fed { at: Some(UnixMillis(70)), end: true, ..stands });
    }
    let state = port.shards(&label).await.unwrap().remove(0).checkpoint;
    assert_eq!((state.sequence, state.at), (Some(7.into()), UnixMillis(100)), "the counts' own stay");
    let stranger = "never numbered".into();
    let outcomes = [
        port.fed(&label, &stranger, 1.into(), UnixMillis(1)).await,
        port.fed_at(&label, &stranger, UnixMillis(1)).await,
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Fault::Fatal(_))), "{outcome:?}");
    }
    port.fed_end(&label, &stranger, UnixMillis(1)).await.unwrap();
    assert_eq!(port.shards(&label).await.unwrap().len(), 1, "and nothing was made of it");
}

async fn a_shard_from_before_is_adopted_once(port: &dyn Checkpoints) {
    let (label, shard) = numbered(port, "adopted").await;
    port.advance(&label, &shard, 7.into(), UnixMillis(70)).await.unwrap();
    let seen = port.shards(&label).await.unwrap().remove(0).checkpoint;
    port.advance(&label, &shard, 9.into(), UnixMillis(90)).await.unwrap();
    port.adopt(&label, &seen).await.unwrap();
    let adopted = Fed { sequence: Some(7.into()), at: Some(UnixMillis(70)), end: false };
    assert_eq!(fed(port, &label).await, adopted);
    port.fed(&label, &shard, 8.into(), UnixMillis(80)).await.unwrap();
    port.adopt(&label, &seen).await.unwrap();
    assert_eq!(fed(port, &label).await.sequence, Some(8.into()));
    let (label, shard) = numbered(port, "adopted-closed").await;
    port.close(&label, &shard, UnixMillis(70)).await.unwrap();
    let seen = port.shards(&label).await.unwrap().remove(0).checkpoint;
    port.adopt(&label, &seen).await.unwrap();
    assert_eq!(fed(port, &label).await, Fed { sequence: None, at: Some(UnixMillis(70)), end: true });
}

async fn lapses_of_a_stream_shard_are_one_that_grows(port: &dyn Checkpoints) {
    let lapse = |shard, first, last| Lapse { shard: Ordinal(shard), seconds: Seconds { first, last } };
    assert_eq!(port.lapses().await, Ok(vec![]));
    for put in [lapse(7, 50, 60), lapse(8, 1, 2), lapse(7, 55, 58), lapse(7, 40, 55), lapse(7, 70, 71)] {
        port.put_lapse(put).await.unwrap();
        port.put_lapse(put).await.unwrap();
    }
    assert_eq!(port.lapses().await, Ok(vec![lapse(7, 40, 71), lapse(8, 1, 2)]));
    port.drop_lapse(lapse(7, 40, 60)).await.unwrap();
    assert_eq!(port.lapses().await.unwrap().len(), 2, "it has grown since it was read");
    for _ in 0..2 {
        port.drop_lapse(lapse(7, 40, 71)).await.unwrap();
        assert_eq!(port.lapses().await, Ok(vec![lapse(8, 1, 2)]));
    }
}
