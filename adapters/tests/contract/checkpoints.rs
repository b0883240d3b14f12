//! Numbers, checkpoints, leases, gaps, configuration.

use std::time::Duration;

use tally_core::definitions::{Definitions, Entry};
use tally_core::fault::Fault;
use tally_core::format::Format;
use tally_core::ids::{Ordinal, ShardCount, StreamLabel, StreamShardId, StreamTable};
use tally_core::lineage::Loss;
use tally_core::milestone::Ladder;
use tally_core::ports::{Checkpoints, Gap, Lease, LeaseTaken, Registry, ShardState, Standing, Told, Worker};
use tally_core::time::UnixMillis;

use crate::engine::Env;

const NOW: UnixMillis = UnixMillis(1000);

pub(crate) async fn contract(env: &Env) {
    let port = &*env.checkpoints;
    a_shard_is_numbered_once_and_no_number_is_given_twice(port).await;
    a_checkpoint_moves_forward_only(port).await;
    a_closed_shard_can_be_forgotten_and_no_other(port).await;
    the_floor_moves_up_only(port).await;
    a_lease_is_taken_by_whoever_saw_it_last(port).await;
    how_far_counters_are_stands_beside_the_gaps_and_never_moves_back(port).await;
    a_loss_is_one_gap_and_queues_an_audit(env).await;
    what_the_deployment_was_created_with_decides(port).await;
    counters_are_defined_by_comparing_with_those_that_stand(port).await;
    a_ladder_is_raised_by_comparing_with_the_one_that_stands(port).await;
    crate::changes::contract(port).await;
}

fn shard(name: &str) -> StreamShardId {
    name.into()
}

/// A stream shard with a number, of a table that has one stream.
async fn numbered(port: &dyn Checkpoints, table: &'static str) -> (StreamLabel, StreamShardId) {
    let (label, shard) = (StreamLabel::new(StreamTable::named(table), "1"), shard("s"));
    port.number(&label, &shard, None, NOW).await.unwrap();
    (label, shard)
}

async fn state(port: &dyn Checkpoints, label: &StreamLabel) -> ShardState {
    port.shards(label).await.unwrap().remove(0)
}

async fn a_shard_is_numbered_once_and_no_number_is_given_twice(port: &dyn Checkpoints) {
    let (label, other) = ("numbered".into(), "numbered-too".into());
    assert_eq!(port.registry(&label).await, Ok(None));
    let (root, a, b) = (shard("root"), shard("a"), shard("b"));
    let number = async |shard, parent| port.number(&label, shard, parent, NOW).await.unwrap();
    assert_eq!(number(&root, None).await, Ordinal(1));
    let (first, second) = tokio::join!(number(&a, Some(&root)), number(&b, Some(&root)));
    let mut given = [first, second];
    given.sort();
    assert_eq!(given, [Ordinal(2), Ordinal(3)]);
    assert_eq!(number(&root, None).await, Ordinal(1), "a repetition answers the number given");
    let behind = Registry::after(Some(Ordinal(4)));
    assert!(behind.next > Ordinal(4) && behind.floor < Some(behind.next));
    assert_eq!(port.number(&other, &root, None, NOW).await, Ok(behind.next), "no stream repeats another's numbers");
    let started = Registry { next: Ordinal(behind.next.0 + 1), ..behind };
    assert_eq!(port.registry(&other).await, Ok(Some(started)));

    let passed = Registry { next: Ordinal(5), floor: None };
    assert_eq!(port.registry(&label).await, Ok(Some(passed)), "of two streams that begin at once one takes its number");

    let earlier = port.number(&"before".into(), &root, None, NOW).await;
    assert!(
        matches!(earlier, Err(Fault::Transient(_))),
        "{earlier:?}: its floor would cover the later stream's shards"
    );
    assert_eq!(port.registry(&"before".into()).await, Ok(None));

    let elsewhere = StreamLabel::new(StreamTable::named("changes"), label.as_str());
    assert_eq!(port.registry(&elsewhere).await, Ok(None), "the same label of another table");
    assert_eq!(port.number(&elsewhere, &root, None, NOW).await, Ok(Ordinal(1)), "each table counts by itself");
    assert_eq!(port.shards(&elsewhere).await.unwrap().len(), 1);
    let states = port.shards(&label).await.unwrap();
    let ordinals: Vec<u64> = states.iter().map(|state| state.checkpoint.ordinal.0).collect();
    assert_eq!(ordinals, [1, 2, 3]);
    let child = &states[1].checkpoint;
    assert_eq!((child.parent.as_ref(), child.sequence, child.closed, child.at), (Some(&root), None, false, NOW));
    assert!(states.iter().all(|state| state.lease.is_none()));
}

async fn a_checkpoint_moves_forward_only(port: &dyn Checkpoints) {
    let (label, shard) = numbered(port, "forward").await;
    let advance = async |to: u64, at| port.advance(&label, &shard, to.into(), UnixMillis(at)).await.unwrap();
    advance(900, 2000).await;
    advance(1_000_000, 3000).await;
    advance(900, 9000).await;
    let reached = state(port, &label).await.checkpoint;
    assert_eq!((reached.sequence, reached.at), (Some(1_000_000.into()), UnixMillis(3000)));
    port.refresh(&label, &shard, UnixMillis(4000)).await.unwrap();
    port.refresh(&label, &shard, UnixMillis(3500)).await.unwrap();
    assert_eq!(state(port, &label).await.checkpoint.at, UnixMillis(4000));
    port.close(&label, &shard, UnixMillis(5000)).await.unwrap();
    port.close(&label, &shard, UnixMillis(5000)).await.unwrap();
    let closed = state(port, &label).await.checkpoint;
    assert_eq!((closed.closed, closed.sequence), (true, Some(1_000_000.into())));

    let stranger = "never numbered".into();
    for outcome in [port.advance(&label, &stranger, 1.into(), NOW).await, port.refresh(&label, &stranger, NOW).await] {
        assert!(matches!(outcome, Err(Fault::Fatal(_))), "{outcome:?}");
    }
    assert_eq!(port.shards(&label).await.unwrap().len(), 1, "and nothing was made of it");
}

async fn a_closed_shard_can_be_forgotten_and_no_other(port: &dyn Checkpoints) {
    let (label, shard) = numbered(port, "forgotten").await;
    port.forget(&label, &shard).await.unwrap();
    assert_eq!(port.shards(&label).await.unwrap().len(), 1);
    port.close(&label, &shard, NOW).await.unwrap();
    port.forget(&label, &shard).await.unwrap();
    port.forget(&label, &shard).await.unwrap();
    assert_eq!(port.shards(&label).await, Ok(vec![]));
    port.close(&label, &shard, NOW).await.unwrap();
    assert_eq!(port.shards(&label).await, Ok(vec![]), "a worker that comes later makes nothing of it");
}

async fn the_floor_moves_up_only(port: &dyn Checkpoints) {
    let (label, _) = numbered(port, "floored").await;
    let base = port.registry(&label).await.unwrap().unwrap().next.0;
    for floor in [3, 7, 5] {
        port.raise_floor(&label, Ordinal(base + floor)).await.unwrap();
    }
    assert_eq!(port.registry(&label).await.unwrap().unwrap().floor, Some(Ordinal(base + 7)));
    port.raise_floor(&"never seen".into(), Ordinal(1)).await.unwrap();
    assert_eq!(port.registry(&"never seen".into()).await, Ok(None));
}

async fn a_lease_is_taken_by_whoever_saw_it_last(port: &dyn Checkpoints) {
    let (label, shard) = numbered(port, "leased").await;
    let (mine, other) = (Worker("w-1".into()), Worker("w-2".into()));
    let lease = async |holder, seen: Option<&Lease>| port.lease(&label, &shard, holder, seen).await.unwrap();
    let LeaseTaken::Taken(first) = lease(&mine, None).await else { panic!() };
    assert_eq!(first.holder, mine);
    assert_eq!(lease(&other, None).await, LeaseTaken::Lost);
    let LeaseTaken::Taken(renewed) = lease(&mine, Some(&first)).await else { panic!() };
    assert!(renewed.beat > first.beat);
    assert_eq!(lease(&mine, Some(&first)).await, LeaseTaken::Taken(renewed.clone()), "the answer was lost");
    assert_eq!(lease(&other, Some(&first)).await, LeaseTaken::Lost, "it is alive");
    let LeaseTaken::Taken(stolen) = lease(&other, Some(&renewed)).await else { panic!() };
    assert_eq!(state(port, &label).await.lease, Some(stolen.clone()));
    port.release(&label, &shard, &mine).await.unwrap();
    assert_eq!(state(port, &label).await.lease, Some(stolen.clone()), "only its holder gives a lease back");
    port.release(&label, &shard, &other).await.unwrap();
    port.release(&label, &shard, &other).await.unwrap();
    assert_eq!(state(port, &label).await.lease, None);
    let LeaseTaken::Taken(later) = lease(&other, None).await else { panic!() };
    assert!(later.beat > stolen.beat, "no later lease looks like an earlier one");
}

async fn a_loss_is_one_gap_and_queues_an_audit(env: &Env) {
    let port = &*env.checkpoints;
    assert_eq!(port.gaps().await, Ok(vec![]));
    assert_eq!(env.recounts.audit_queued().await, Ok(None));
    let trimmed = Loss::Trimmed(shard("shard.with/odd#characters"));
    let outage = Loss::Outage { shard: shard("s"), unread: Duration::from_secs(90_000) };
    let first = port.open_gap(&trimmed, UnixMillis(10)).await.unwrap();
    assert_eq!((first.kind.as_str(), first.opened), ("trimmed", UnixMillis(10)));
    assert_eq!(first.detail, trimmed.to_string());
    let again = port.open_gap(&trimmed, UnixMillis(20)).await.unwrap();
    assert_eq!((&again.id, again.opened), (&first.id, UnixMillis(20)), "an audit has to begin after the last loss");
    let again = port.open_gap(&trimmed, UnixMillis(15)).await.unwrap();
    assert_eq!(again.opened, UnixMillis(21), "forward with every call, by whatever clock");
    let second = port.open_gap(&outage, UnixMillis(30)).await.unwrap();
    assert_eq!(env.recounts.audit_queued().await, Ok(Some(UnixMillis(30))));
    let open = |gaps: Vec<Gap>| gaps.into_iter().map(|gap| gap.id).collect::<Vec<_>>();
    let mut both = [again.id.clone(), second.id.clone()];
    both.sort();
    assert_eq!(open(port.gaps().await.unwrap()), both);

    port.close_gap(&first).await.unwrap();
    assert_eq!(port.gaps().await.unwrap().len(), 2, "it was opened again since");
    port.close_gap(&again).await.unwrap();
    port.close_gap(&again).await.unwrap();
    let told = Some(Told { as_of: UnixMillis(30), times: 4 });
    assert_eq!(port.standing().await, Ok(Standing { gaps: vec![second], told }), "what was said before stays");
}

async fn how_far_counters_are_stands_beside_the_gaps_and_never_moves_back(port: &dyn Checkpoints) {
    assert_eq!(port.standing().await, Ok(Standing::default()));
    for (says, as_of, times) in [(20, 20, 1), (20, 20, 2), (15, 20, 2), (900, 900, 3), (30, 30, 4)] {
        port.tell(UnixMillis(says), UnixMillis(100)).await.unwrap();
        assert_eq!(port.standing().await.unwrap().told, Some(Told { as_of: UnixMillis(as_of), times }), "{says}");
    }
}

async fn what_the_deployment_was_created_with_decides(port: &dyn Checkpoints) {
    let count = |n| ShardCount::new(n).unwrap();
    assert_eq!(port.deployed().await, Ok(None), "asking decides nothing");
    assert_eq!(port.format().await, Ok(None));
    assert_eq!(port.recent_format().await, Ok(None));
    assert_eq!(port.config(Some(count(64))).await, Ok(count(64)));
    assert_eq!(port.deployed().await, Ok(Some(count(64))));
    assert_eq!(port.config(Some(count(16))).await, Ok(count(64)));
    assert_eq!(port.config(None).await, Ok(count(64)));
    let written = Some(Format::written());
    assert_eq!(port.format().await, Ok(written.clone()));
    assert!([Ok(None), Ok(written)].contains(&port.recent_format().await), "it may be late");
}

async fn a_ladder_is_raised_by_comparing_with_the_one_that_stands(port: &dyn Checkpoints) {
    let [none, one, two]: [Ladder; 3] = [Ladder::default(), "100".parse().unwrap(), "100,1000".parse().unwrap()];
    assert_eq!(port.ladder().await, Ok(none));
    assert_eq!(port.raise_ladder(&one, &two).await, Ok(false), "it is not the one that stands");
    assert_eq!(port.raise_ladder(&none, &one).await, Ok(true));
    assert_eq!(port.raise_ladder(&none, &one).await, Ok(false), "a repetition finds it there");
    assert_eq!(port.raise_ladder(&one, &two).await, Ok(true));
    assert_eq!(port.ladder().await, Ok(two));
    assert_eq!(port.deployed().await, Ok(Some(ShardCount::new(64).unwrap())), "what else is there stays");
}

async fn counters_are_defined_by_comparing_with_those_that_stand(port: &dyn Checkpoints) {
    let entry = |name: &str, kind: &str| Entry {
        name: name.to_owned(),
        kind: kind.to_owned(),
        add: format!("{name}-add"),
        ..Entry::default()
    };
    let full = Entry {
        remove: Some("untag".to_owned()),
        subject: Some("hashtag".to_owned()),
        member: Some("post_id".to_owned()),
        topic: Some("tags".to_owned()),
        ..entry("tagged", "set")
    };
    let list = |entries: &[Entry]| Definitions::new(entries).unwrap();
    let (none, some) = (Definitions::likes_alone(), list(std::slice::from_ref(&full)));
    let all = list(&[full, entry("views", "sum")]);
    assert_eq!(port.definitions().await, Ok(none.clone()));
    assert_eq!(port.define(&some, &all).await, Ok(false), "they are not the ones that stand");
    assert_eq!(port.define(&none, &some).await, Ok(true));
    assert_eq!(port.define(&none, &some).await, Ok(false), "a repetition finds them there");
    assert_eq!(port.definitions().await, Ok(some.clone()));
    assert_eq!(port.define(&some, &all).await, Ok(true));
    assert_eq!(port.definitions().await, Ok(all));
    assert_eq!(port.deployed().await, Ok(Some(ShardCount::new(64).unwrap())), "what else is there stays");
}
