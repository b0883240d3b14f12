//! Tests of a fold beside others: another fold that is ahead of it, losses that others open, and writes that were stored
//! although they had no answer.

use tally_core::cached::StandingAt;
use tally_core::changes::{LossNumber, Lost, Place, Standing};
use tally_core::fold::Position;
use tally_core::ports::OwnedPartition;
use tally_core::ports::log::{Rebalance, Records, Revocation};
use tally_core::topic::{Log, Offset};

use super::*;

const LEASE: Option<Duration> = Some(Duration::from_secs(6));
/// Longer than a fold waits before it stores its position.
const STORED: Duration = Duration::from_secs(40);

/// A member of the group. Whenever it looks at the log of a partition, another fold goes on there.
struct Overtaken {
    inner: Box<dyn Intake>,
    changes: Changes,
    log: Stamping,
}

#[derive(Clone)]
struct OvertakenPartition {
    inner: Arc<dyn OwnedPartition>,
    changes: Changes,
    broker: Broker,
    clock: Clock,
}

impl std::fmt::Debug for OvertakenPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Intake for Overtaken {
    async fn next(&mut self) -> Outcome<Rebalance> {
        let Rebalance::Assigned(partitions) = self.inner.next().await? else { return self.next().await };
        let Self { changes, log: Stamping(broker, clock), .. } = self;
        let overtaken = partitions.into_iter().map(|inner| {
            let (changes, broker) = (changes.clone(), broker.clone());
            Arc::new(OvertakenPartition { inner, changes, broker, clock: *clock }) as Arc<dyn OwnedPartition>
        });
        Ok(Rebalance::Assigned(overtaken.collect()))
    }

    async fn leave(self: Box<Self>) {
        self.inner.leave().await;
    }
}

#[async_trait]
impl OwnedPartition for OvertakenPartition {
    fn partition(&self) -> &Partition {
        self.inner.partition()
    }

    async fn partitions(&self) -> Outcome<u32> {
        self.inner.partitions().await
    }

    async fn log(&self) -> Outcome<Log> {
        let (log, index) = (self.inner.log().await?, self.partition().index);
        let message = Message { read: self.clock.now(), body: Body::Repaired(LossNumber(1)) };
        let value = message.write(&DeploymentId("test".into()));
        let outgoing = Outgoing { topic: TOPIC, partition: Some(index), key: None, value: Some(&value), headers: &[] };
        let written = self.broker.write(outgoing, self.clock.now())?;
        let at = Place::new(1, Offset(written.offset.0 + 1));
        tally_testkit::stand(&self.changes, index, &StandingAt { at, standing: Standing::default() }).await;
        Ok(log)
    }

    async fn committed(&self) -> Outcome<Option<Offset>> {
        self.inner.committed().await
    }

    async fn start_at(&self, offset: Offset) -> Outcome<()> {
        self.inner.start_at(offset).await
    }

    async fn records(&self) -> Outcome<Arc<Records>> {
        self.inner.records().await
    }

    async fn revoked(&self) -> Revocation {
        self.inner.revoked().await
    }

    fn finished(&self, offset: Offset) {
        self.inner.finished(offset);
    }
}

#[tokio::test(start_paused = true)]
async fn another_fold_that_goes_on_while_this_one_begins_is_no_loss() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    world.churn(30, 6, 20).await;
    tokio::time::sleep(STORED).await;
    stop(vec![running]).await;
    let (changes, log) = (Changes::new(&world.store.repeating(5)), Stamping(world.broker.clone(), world.clock));
    let inner = Box::new(world.broker.join("fold", TOPIC));
    let running = world.run_with("b", LEASE, Box::new(Overtaken { inner, changes, log }));
    world.churn(30, 6, 20).await;
    world.exact(6).await;
    world.fresh().await;
    assert_eq!(world.losses().await, [""; 0]);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_fold_goes_on_where_another_one_has_found_that_the_log_lost_its_end() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    world.churn(30, 6, 20).await;
    tokio::time::sleep(STORED).await;
    assert_eq!(world.fill(6).await, 6);
    let changes = Changes::new(&world.store.repeating(5));
    for (Partition { index, .. }, log) in world.broker.reader("test", TOPIC).logs().await.unwrap() {
        let Position { at, mut filter, ladder, .. } = changes.position(index).await.unwrap().unwrap();
        let at = Place::new(at.generation() + 1, log.end);
        let number = filter.jump(at, world.clock.now());
        changes.open_loss(number, "jump", &format!("{index}")).await.unwrap();
        let standing = filter.standing();
        changes.store_position(index, &Position { at, filter, ladder, last: None }).await.unwrap();
        assert!(tally_testkit::stand(&changes, index, &StandingAt { at, standing }).await);
    }
    world.fresh().await;
    world.cache_is_fresh().await;
    assert_eq!(world.cached(6).await.len(), 0, "the first fold did not tell the cache what the other one wrote");
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_jump_whose_number_another_loss_has_is_heard_of_all_the_same() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    world.churn(30, 6, 20).await;
    world.fresh().await;
    let last = LossNumber(world.clock.now().0 + 1_000_000_000);
    for partition in 0..PARTITIONS {
        world.tell(partition, Body::Lost(Lost { number: last, next: None })).await;
    }
    tokio::time::sleep(STORED).await;
    stop(vec![running]).await;
    // This loss is announced in no partition.
    let changes = Changes::new(&world.store.repeating(5));
    changes.open_loss(LossNumber(last.0 + 1), "trimmed", "a stream shard").await.unwrap();
    for (Partition { index, .. }, log) in world.broker.reader("test", TOPIC).logs().await.unwrap() {
        // Another message follows, so that the position is not in the log after the trim.
        world.tell(index, Body::Repaired(LossNumber(1))).await;
        world.broker.trim(TOPIC, index, log.end.0 + 1);
    }
    let running = world.run("b", LEASE);
    world.fresh().await;
    assert!(world.losses().await.contains(&"jump".to_owned()), "{:?}", world.losses().await);
    stop(vec![running]).await;
}

/// Kafka loses the end of the log while no fold runs, and appends other messages there before the next fold begins.
async fn regrown(world: &World, running: Running) -> Running {
    running.kill().await;
    for (Partition { index, .. }, log) in world.broker.reader("test", TOPIC).logs().await.unwrap() {
        world.broker.lose_tail(TOPIC, index, log.end.0 - 2);
        for _ in 0..5 {
            world.tell(index, Body::Repaired(LossNumber(1))).await;
        }
    }
    world.run("after", LEASE)
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_its_end_and_grew_on_is_a_loss_before_anything_is_written() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    world.churn(100, 6, 20).await;
    world.exact(6).await;
    let running = regrown(&world, running).await;
    world.churn(30, 6, 20).await;
    world.fresh().await;
    let losses = world.losses().await;
    assert!(losses.iter().filter(|kind| *kind == "jump").count() >= PARTITIONS as usize, "{losses:?}");
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_messages_that_changed_no_counter_and_grew_on_is_a_loss() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    world.churn(100, 6, 20).await;
    world.exact(6).await;
    world.fresh().await;
    let changes = Changes::new(&world.store.repeating(5));
    for (Partition { index, .. }, log) in world.broker.reader("test", TOPIC).logs().await.unwrap() {
        let (stated, kept) = (changes.stated(index).await.unwrap().unwrap(), Place::new(1, Offset(log.end.0 - 2)));
        assert!(stated.standing.at > kept && stated.read.is_none_or(|read| read.at <= kept), "{stated:?}");
    }
    let running = regrown(&world, running).await;
    world.fresh().await;
    let losses = world.losses().await;
    assert!(losses.iter().filter(|kind| *kind == "jump").count() >= PARTITIONS as usize, "{losses:?}");
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_told_of_a_change_that_was_stored_without_an_answer() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    world.like(0, 0).await;
    world.exact(1).await;
    world.cache_is_fresh().await;
    assert_eq!(world.fill(1).await, 1);
    world.store.faults([Rule::new(Fault::DropReply).on("BatchExecuteStatement").nth(1)]);
    world.like(0, 1).await;
    world.exact(1).await;
    world.cache_is_fresh().await;
    assert_eq!(world.store.emulator.stats().fired("drop_reply"), 1);
    assert_eq!(world.cached(1).await[&post(0)].likes, 2);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_does_not_change_is_not_told_so_a_fill_under_way_stays() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    world.like(0, 0).await;
    world.exact(1).await;
    world.cache_is_fresh().await;
    let partition = partition_of(&post(0));
    let token = world.cache.begin_fill(partition, &post(0)).await.unwrap().unwrap();
    let item = json!({
        "pk": {"S": "p-0#0"}, "user_id": {"S": "u-0"}, "post_id": {"S": "p-0"}, "liked_at": {"N": "1"}, "region": {"S": "eu"},
    });
    world.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.cache_is_fresh().await;
    assert!(world.cache.fill(partition, &post(0), &token, &Cached::default()).await.unwrap());
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn counters_are_never_ahead_of_what_is_stated_as_read() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", LEASE);
    let changes = Changes::new(&world.store.repeating(5));
    for _ in 0..100 {
        world.churn(5, 6, 20).await;
        let counters = world.counters(6).await;
        for (id, counter) in counters {
            let stated = changes.stated(partition_of(&id)).await.unwrap().unwrap();
            assert!(stated.read.is_some_and(|read| counter.version <= read.at), "{id}: {counter:?}, {stated:?}");
        }
        tokio::time::sleep(Duration::from_millis(37)).await;
    }
    stop(vec![running]).await;
}
