//! Tests of what the change-streamer's relay and fold read beside changes of rows: thresholds of milestones
//! (*ladders*), corrections, messages that cannot be read, and topics and streams that are missing or not the expected
//! ones.

use tally_core::changes::{Amend, Correction, LossNumber};
use tally_core::fault::Fault as Refusal;
use tally_core::ids::MemberKey;
use tally_service::Exit;

use super::*;

impl World {
    /// Adds to the first part of a counter that has had so many corrections, as a recount does.
    fn correct(&self, p: u64, by: i64, seen: u64) {
        let (counter, part) = (post(p), RowKey::first(&post(p)).shard);
        let correction = Correction { counter, parts: [(part, Amend::Add(by))].into(), seen, loss: None };
        self.tell(partition_of(&post(p)), Body::Correction(correction));
    }

    /// Raises the stored ladder, and waits until relays have read it again, which they do every ten seconds.
    async fn raise(&self, ladder: &str) {
        let deployment = Checkpoints::new(&self.tables.store.connection);
        let stands = deployment.ladder().await.unwrap();
        assert_eq!(deployment.raise_ladder(&stands, &ladder.parse().unwrap()).await, Ok(true));
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_like_that_reaches_a_threshold_is_recorded_once_the_ladder_is_in_the_log_and_a_correction_has_no_winner() {
    let (mut world, running) = World::running(1).await;
    world.raise("2").await;
    world.fresh().await;
    for user in 0..4 {
        world.like(0, user).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.exact(1).await;
    assert_eq!(world.milestones(0).await, [(2, Winner::Member(MemberKey::new("u-1").unwrap()))]);
    // The post has reached 3 already when that threshold is announced.
    world.raise("2,3,6,10").await;
    world.fresh().await;
    for user in 4..8 {
        world.like(0, user).await;
    }
    world.exact(1).await;
    world.correct(0, 5, 0);
    eventually("it is corrected", async || world.tables.counters(1).await[&post(0)].likes == 13).await;
    let reached = world.milestones(0).await;
    let sixth = Winner::Member(MemberKey::new("u-5").unwrap());
    assert_eq!(reached[1..], [(6, sixth), (10, Winner::Unwitnessed)], "{reached:?}");
    assert_eq!(reached.len(), 3);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_is_gone_after_corrections_is_corrected_as_one_that_never_was() {
    let (mut world, running) = World::running(1).await;
    world.fresh().await;
    for user in 0..4 {
        world.like(0, user).await;
    }
    world.exact(1).await;
    world.tables.edit_counter(0, "s0", number(3)).await;
    world.tables.edit_counter(0, "likes", number(3)).await;
    world.correct(0, 1, 0);
    world.exact(1).await;
    assert_eq!(world.tables.counters(1).await[&post(0)].corrections, 1);
    world.tables.delete_counter(0).await;
    world.correct(0, 4, 0);
    world.exact(1).await;
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_correction_is_judged_by_the_counter_as_it_is_although_inconsistent_reads_are_a_minute_old() {
    let read_lag = Duration::from_secs(60);
    let world = World::start(Config { shards: 1, read_lag, ..Config::default() }).await;
    let running = world.run("a");
    world.fresh().await;
    for seen in 0..8 {
        world.correct(0, 1, seen);
        world.fresh().await;
    }
    let counter = world.tables.counters(1).await[&post(0)].clone();
    assert_eq!((counter.likes, counter.corrections), (8, 8));
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_whose_item_becomes_unreadable_while_the_fold_remembers_it_is_a_loss_and_stops_nothing() {
    let (mut world, running) = World::running(1).await;
    world.fresh().await;
    world.like(0, 0).await;
    world.like(1, 0).await;
    world.exact(2).await;
    world.tables.edit_counter(0, "likes", json!({"S": "x"})).await;
    world.like(0, 1).await;
    eventually("a loss is open", async || world.tables.losses().await == ["damaged"]).await;
    world.like(1, 1).await;
    world.fresh().await;
    world.tables.edit_counter(0, "likes", number(1)).await;
    assert_eq!(world.tables.counters(2).await[&post(1)].likes, 2);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_read_stops_its_partition_by_name_and_no_other_also_after_a_restart() {
    let foreign = Message { read: BEGAN, body: Body::Repaired(LossNumber(1)) }.write(&DeploymentId("other".into()));
    let (nothing, broken) = ((None, "it has no value"), (Some(&b"\xff{"[..]), "expected value"));
    let later = (Some(&br#"{"v":7}"#[..]), "version 7");
    let foreign = (Some(&foreign[..]), r#"it is of deployment "other""#);
    for bad in [[nothing, broken], [later, foreign]] {
        let (mut world, mut running) = World::running(1).await;
        world.fresh().await;
        eventually("it is ready", async || running.host().readiness().report().ready).await;
        for (partition, (value, _)) in (0..).zip(bad) {
            world.write(partition, value);
        }
        // The process that begins after it stops there, too: the message is never passed over.
        for next in ["b", "c"] {
            for (partition, (_, named)) in (0..).zip(bad) {
                let name = format!("changes/{partition}");
                waits(&running, &name, &[&format!("the fold of {name} stands still at offset "), named]).await;
            }
            let now = world.clock.now();
            world.tables.churn(50, 20, 9).await;
            eventually("the last partition goes on", async || {
                let stated = world.tables.changes().stated(2).await.unwrap().unwrap_or_default();
                stated.standing.standing.as_of >= Some(now)
            })
            .await;
            stop(vec![running]).await;
            running = world.run(next);
        }
        assert_eq!(world.tables.losses().await, [""; 0]);
        stop(vec![running]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_kafka_refuses_is_named_and_sent_again_and_nothing_is_lost() {
    let (mut world, running) = World::running(1).await;
    world.fresh().await;
    for (why, fault) in [("not authorized", Refusal::Fatal as fn(String) -> Refusal), ("too large", Refusal::Poison)] {
        world.broker.refuse_writes(TOPIC, Some(fault(why.to_owned())));
        world.tables.churn(50, 6, 20).await;
        waits(&running, "changes", &["of topic `changes` takes no message", why]).await;
        world.broker.refuse_writes(TOPIC, None);
        world.exact(6).await;
        running.host().readiness().until_ready().await;
    }
    assert_eq!(world.tables.losses().await, [""; 0]);
    stop(vec![running]).await;
}

/// A producer whose first two messages with entries wait for the test. Then the first is written, and the second is
/// refused a second later.
struct Slow {
    log: Stamping,
    sent: watch::Sender<u32>,
    answers: watch::Receiver<bool>,
}

#[async_trait]
impl Producer for Slow {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let message = Message::read(record.value.unwrap(), &deployment()).unwrap();
        if let Body::Sections { sections, .. } = message.body
            && sections.iter().any(|section| !section.entries.is_empty())
        {
            self.sent.send_modify(|sent| *sent += 1);
            let nth = *self.sent.borrow();
            if nth <= 2 {
                self.answers.clone().wait_for(|answers| *answers).await.unwrap();
            }
            if nth == 2 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                return Err(Refusal::Transient("refused".to_owned()));
            }
        }
        self.log.send(record).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_everything_was_dropped_is_not_taken_for_the_answer_to_a_later_message() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let ((sent, mut sends), (answer, answers)) = (watch::channel(0), watch::channel(false));
    let (log, mut ports) = (Stamping(world.broker.clone(), world.clock), world.ports());
    ports.log.producer = Arc::new(Slow { log, sent, answers });
    let running = start("a", world.clock, true, ports);
    world.fresh().await;
    world.like(0, 0).await;
    sends.wait_for(|sent| *sent == 1).await.unwrap();
    world.like(0, 1).await;
    tokio::time::advance(tally_core::relay::Rules::default().patience).await;
    sends.wait_for(|sent| *sent == 2).await.unwrap();
    answer.send_replace(true);
    world.exact(1).await;
    world.fresh().await;
    assert_eq!(world.tables.losses().await, [""; 0]);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_another_deployment_writes_is_refused_by_name_and_nothing_is_written_to_it() {
    let world = World::start(Config { shards: 1, ..Config::default() }).await;
    world.tell(2, Body::Repaired(LossNumber(1)));
    let own = world.run("a");
    own.ready().await.unwrap();
    stop(vec![own]).await;
    let written = world.ends().await;
    let new = Store::with(Config { shards: 1, ..Config::default() }).await;
    let begun = Store::with(Config { shards: 1, ..Config::default() }).await;
    // It has begun with another topic, and is given this one.
    world.broker.create_topic("elsewhere", PARTITIONS);
    let topic = world.broker.reader("test", "elsewhere").logs().await.unwrap().remove(0).1.topic;
    let of_begun = LogConfig { deployment: DeploymentId("b".into()), partitions: PARTITIONS, topic, generation: 1 };
    Changes::new(&begun.connection).begin_log(&of_begun).await.unwrap();
    for other in [&new, &begun] {
        let ended = start("b", world.clock, false, ports(other, &world.broker, world.clock)).ended().await;
        assert_eq!(ended.exit(), Exit::CONFIG, "{ended:?}");
        let said = format!("{ended:?}");
        let parts = ["changes-topic", "another deployment, test", "a topic of its own"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert_eq!(world.ends().await, written);
    }
    assert_eq!(Changes::new(&new.connection).config().await, Ok(None), "it may begin another topic");
}

#[tokio::test(start_paused = true)]
async fn a_stream_and_a_topic_that_are_not_there_at_the_start_are_waited_for_by_name() {
    let store = Store::with(Config { shards: 1, ..Config::default() }).await;
    let stream = async |specification: Value| {
        store.call("UpdateTable", json!({"TableName": "likes", "StreamSpecification": specification})).await;
    };
    stream(json!({"StreamEnabled": false})).await;
    let (broker, clock) = (Broker::new(), Clock::starting_at(BEGAN));
    let running = start("a", clock, false, ports(&store, &broker, clock));
    waits(&running, "tables", &["table likes has no stream"]).await;
    stream(json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"})).await;
    waits(&running, "changes", &["there is no topic `changes`"]).await;
    broker.create_topic(TOPIC, PARTITIONS);
    running.ready().await.unwrap();
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_another_number_of_partitions_stops_the_process_by_name() {
    let (world, running) = World::running(1).await;
    world.fresh().await;
    world.broker.add_partitions(TOPIC, 1);
    for running in [running, world.run("b")] {
        let ended = running.ended().await;
        assert_eq!(ended.exit(), Exit::CONFIG, "{ended:?}");
        assert!(format!("{ended:?}").contains("4 partitions"), "{ended:?}");
        running.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_switched_off_is_named_and_the_next_one_begins_behind_a_loss_and_without_the_old_ones_shards()
{
    let (mut world, running) = World::running(2).await;
    world.count(50, 6, 20).await;
    world.fresh().await;
    let stream = |specification| json!({"TableName": "likes", "StreamSpecification": specification});
    world.tables.store.call("UpdateTable", stream(json!({"StreamEnabled": false}))).await;
    waits(&running, "stream_shards", &["has no stream"]).await;
    let view = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
    world.tables.store.call("UpdateTable", stream(view)).await;
    world.fresh().await;
    world.count(50, 6, 20).await;
    running.host().readiness().until_ready().await;
    assert_eq!(world.tables.losses().await, ["unfollowed"]);
    let changes = world.tables.changes();
    let every = async || changes.every_shard().await.unwrap();
    let closed = async || every().await.into_iter().filter(|stored| stored.closed.is_some()).collect::<Vec<_>>();
    eventually("the old stream's shards are closed", async || closed().await.len() == 2).await;
    for stored in closed().await {
        let id = json!({"id": {"S": format!("changes/shard/{}", stored.shard)}});
        world.tables.store.edit("checkpoints", id, "closed", number(1)).await;
    }
    eventually("the old stream's shards are forgotten", async || every().await.len() == 2).await;
    stop(vec![running]).await;
}
