//! Tests of what relay and fold read: ladders, corrections, messages that cannot be read, another topic, another
//! stream.

use tally_change_streamer::{self as streamer, LogPorts};
use tally_core::changes::{Amend, Correction, LossNumber};
use tally_core::fault::Fault as Refusal;
use tally_core::ids::MemberKey;
use tally_service::{Condition, Exit};

use super::*;

/// Waits until a condition is not ready and says all of these.
async fn waits(running: &Running, condition: &str, says: &[&str]) {
    let began = Instant::now();
    loop {
        let report = running.host().readiness().report();
        if let Some(Condition::NotReady(why)) = report.conditions.get(condition)
            && says.iter().all(|said| why.contains(said))
        {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{says:?}: {report:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl World {
    /// Adds to the first part of a counter that has had so many corrections, as a recount does.
    async fn correct(&self, p: u64, by: i64, seen: u64) {
        let (counter, part) = (post(p), RowKey::first(&post(p)).shard);
        let correction = Correction { counter, parts: [(part, Amend::Add(by))].into(), seen, loss: None };
        self.tell(partition_of(&post(p)), Body::Correction(correction)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_like_that_reaches_a_threshold_is_recorded_once_the_ladder_is_in_the_log_and_a_correction_has_no_winner() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    world.ladder.send_replace("2".parse().unwrap());
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    for user in 0..4 {
        world.like(0, user).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.exact(1).await;
    assert_eq!(world.milestones(0).await, [(2, Winner::Member(MemberKey::new("u-1").unwrap()))]);
    // The post has reached 3 already when that threshold is announced.
    world.ladder.send_replace("2,3,6,10".parse().unwrap());
    world.fresh().await;
    for user in 4..8 {
        world.like(0, user).await;
    }
    world.exact(1).await;
    world.correct(0, 5, 0).await;
    let began = Instant::now();
    while world.counters(1).await[&post(0)].likes != 13 {
        assert!(began.elapsed() < DEADLINE, "{:?}", world.counters(1).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let reached = world.milestones(0).await;
    let sixth = Winner::Member(MemberKey::new("u-5").unwrap());
    assert_eq!(reached[1..], [(6, sixth), (10, Winner::Unwitnessed)], "{reached:?}");
    assert_eq!(reached.len(), 3);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_is_gone_after_corrections_is_corrected_as_one_that_never_was() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    for user in 0..4 {
        world.like(0, user).await;
    }
    world.exact(1).await;
    let key = json!({"post_id": {"S": "p-0"}});
    world.store.edit("like_counts", key.clone(), "s0", number(3)).await;
    world.store.edit("like_counts", key.clone(), "likes", number(3)).await;
    world.correct(0, 1, 0).await;
    world.exact(1).await;
    assert_eq!(world.counters(1).await[&post(0)].corrections, 1);
    world.store.call("DeleteItem", json!({"TableName": "like_counts", "Key": key})).await;
    world.correct(0, 4, 0).await;
    world.exact(1).await;
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_correction_is_judged_by_the_counter_as_it_is_although_inconsistent_reads_are_a_minute_old() {
    let read_lag = Duration::from_secs(60);
    let world = World::start(Config { shards: 1, read_lag, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    for seen in 0..8 {
        world.correct(0, 1, seen).await;
        world.fresh().await;
    }
    let counter = world.counters(1).await[&post(0)].clone();
    assert_eq!((counter.likes, counter.corrections), (8, 8));
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_whose_item_becomes_unreadable_while_the_fold_remembers_it_is_a_loss_and_stops_nothing() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    world.like(0, 0).await;
    world.like(1, 0).await;
    world.exact(2).await;
    world.store.edit("like_counts", json!({"post_id": {"S": "p-0"}}), "likes", json!({"S": "x"})).await;
    world.like(0, 1).await;
    let began = Instant::now();
    while world.losses().await != ["damaged"] {
        assert!(began.elapsed() < DEADLINE, "{:?}", world.losses().await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.like(1, 1).await;
    world.fresh().await;
    world.store.edit("like_counts", json!({"post_id": {"S": "p-0"}}), "likes", number(1)).await;
    assert_eq!(world.counters(2).await[&post(1)].likes, 2);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_read_stops_its_partition_by_name_and_no_other() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    assert!(running.host().readiness().report().ready, "{:?}", running.host().readiness().report());
    let other = Message { read: world.clock.now(), body: Body::Repaired(LossNumber(1)) };
    for (partition, value) in [(0, &br#"{"v":7}"#[..]), (1, &other.write(&DeploymentId("other".into())))] {
        world.write(partition, value).await;
    }
    let began = Instant::now();
    let reasons = loop {
        let report = running.host().readiness().report();
        let reasons: Vec<_> = report.conditions.values().filter(|state| **state != Condition::Ready).cloned().collect();
        if reasons.len() == 2 {
            break format!("{reasons:?}");
        }
        assert!(began.elapsed() < DEADLINE, "{report:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for named in ["version 7", "deployment", "other"] {
        assert!(reasons.contains(named), "{reasons}");
    }
    let now = world.clock.now();
    world.churn(50, 20, 9).await;
    let changes = Changes::new(&world.store.repeating(5));
    while changes.stated(2).await.unwrap().is_none_or(|stated| stated.standing.standing.as_of < Some(now)) {
        assert!(began.elapsed() < DEADLINE, "partition 2 stands still");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_at_all_stops_its_partition_by_name() {
    let world = World::start(Config { shards: 1, ..Config::default() }).await;
    let mut running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    let nothing = Outgoing { topic: TOPIC, partition: Some(0), key: Some(b"k"), value: None, headers: &[] };
    world.broker.write(nothing, world.clock.now()).unwrap();
    world.write(1, b"\xff{").await;
    // The process that begins after it stops there, too: the message is never passed over.
    for next in ["b", "c"] {
        for (partition, named) in [(0, "it has no value"), (1, "expected value")] {
            let name = format!("changes/{partition}");
            let stops = format!("the fold of {name} stands still at offset ");
            waits(&running, &name, &[stops.as_str(), named]).await;
        }
        stop(vec![running]).await;
        running = world.run(next, Some(Duration::from_secs(6)));
    }
    assert_eq!(world.losses().await, [""; 0]);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn what_would_leave_the_range_is_left_out_and_makes_the_counter_doubtful_and_others_go_on() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    let (shard, partition) = (RowKey::first(&post(0)).shard, partition_of(&post(0)));
    let correct = |add, seen| {
        let parts = [(shard, Amend::Add(add))].into();
        Body::Correction(Correction { counter: post(0), parts, seen, loss: None })
    };
    world.like(0, 1).await;
    world.exact(1).await;
    world.tell(partition, correct(i64::MAX - 1, 0)).await;
    world.fresh().await;
    world.like(0, 2).await;
    world.like(1, 1).await;
    world.fresh().await;
    let counter = world.counters(2).await[&post(0)].clone();
    assert_eq!((counter.likes, counter.doubt), (i64::MAX, [shard].into()));
    world.tell(partition, correct(1, counter.corrections)).await;
    world.fresh().await;
    assert_eq!(world.counters(2).await[&post(0)].likes, i64::MAX, "the correction is refused");
    world.tell(partition, correct(2 - i64::MAX, counter.corrections)).await;
    world.exact(2).await;
    assert_eq!(world.counters(2).await[&post(0)].doubt, [].into());
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_kafka_refuses_is_named_and_sent_again_and_nothing_is_lost() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    for (why, fault) in [("not authorized", Refusal::Fatal as fn(String) -> Refusal), ("too large", Refusal::Poison)] {
        world.broker.refuse_writes(TOPIC, Some(fault(why.to_owned())));
        world.churn(50, 6, 20).await;
        waits(&running, "changes", &["of topic `changes` takes no message", why]).await;
        world.broker.refuse_writes(TOPIC, None);
        world.exact(6).await;
        running.host().readiness().until_ready().await;
    }
    assert_eq!(world.losses().await, [""; 0]);
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
        let message = Message::read(record.value.unwrap(), &DeploymentId("test".into())).unwrap();
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
    let log = Stamping(world.broker.clone(), world.clock);
    let intake = Box::new(world.broker.join("fold", TOPIC));
    let running = world.run_over("a", None, intake, Arc::new(Slow { log, sent, answers }));
    world.fresh().await;
    world.like(0, 0).await;
    sends.wait_for(|sent| *sent == 1).await.unwrap();
    world.like(0, 1).await;
    tokio::time::advance(tally_core::relay::Rules::default().patience).await;
    sends.wait_for(|sent| *sent == 2).await.unwrap();
    answer.send_replace(true);
    world.exact(1).await;
    world.fresh().await;
    assert_eq!(world.losses().await, [""; 0]);
    stop(vec![running]).await;
}

/// Starts the whole streamer, as `main` does.
fn start(store: &Store, broker: &Broker, clock: Clock) -> Running {
    let joining = broker.clone();
    let log = LogPorts {
        topic: TOPIC.to_owned(),
        producer: Arc::new(Stamping(broker.clone(), clock)),
        reader: Arc::new(broker.reader("test", TOPIC)),
        join: Arc::new(move || Ok(Box::new(joining.join("fold", TOPIC)))),
    };
    let ports = streamer::Ports::over(&store.repeating(1), log);
    let app = streamer::App::with_ports(None, streamer::Settings::default(), ports);
    Running::start(app, Host::new("a").with_clock(clock).with_chance(Chance::seeded(1)))
}

#[tokio::test(start_paused = true)]
async fn a_log_that_another_deployment_writes_is_refused_by_name_and_nothing_is_written_to_it() {
    let world = World::start(Config { shards: 1, ..Config::default() }).await;
    world.tell(2, Body::Repaired(LossNumber(1))).await;
    let own = start(&world.store, &world.broker, world.clock);
    own.ready().await.unwrap();
    stop(vec![own]).await;
    let ends = async || {
        let logs = world.broker.reader("test", TOPIC).logs().await.unwrap();
        logs.into_iter().map(|(_, log)| log.end).collect::<Vec<_>>()
    };
    let written = ends().await;
    let new = Store::with(Config { shards: 1, ..Config::default() }).await;
    let begun = Store::with(Config { shards: 1, ..Config::default() }).await;
    // It has begun with another topic, and is given this one.
    world.broker.create_topic("elsewhere", PARTITIONS);
    let topic = world.broker.reader("test", "elsewhere").logs().await.unwrap().remove(0).1.topic;
    let of_begun = LogConfig { deployment: DeploymentId("b".into()), partitions: PARTITIONS, topic, generation: 1 };
    Changes::new(&begun.connection).begin_log(&of_begun).await.unwrap();
    for other in [&new, &begun] {
        let ended = start(other, &world.broker, world.clock).ended().await;
        assert_eq!(ended.exit(), Exit::CONFIG, "{ended:?}");
        let said = format!("{ended:?}");
        let parts = ["changes-topic", "another deployment, test", "a topic of its own"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert_eq!(ends().await, written);
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
    let running = start(&store, &broker, clock);
    waits(&running, "tables", &["table likes has no stream"]).await;
    stream(json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"})).await;
    waits(&running, "changes", &["there is no topic `changes`"]).await;
    broker.create_topic(TOPIC, PARTITIONS);
    running.ready().await.unwrap();
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_another_number_of_partitions_stops_the_process_by_name() {
    let world = World::start(Config { shards: 1, ..Config::default() }).await;
    world.broker.add_partitions(TOPIC, 1);
    let running = world.run("a", Some(Duration::from_secs(6)));
    let ended = format!("{:?}", running.ended().await);
    assert!(ended.contains("4 partitions"), "{ended}");
    running.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_switched_off_is_named_and_the_next_one_begins_behind_a_loss_and_without_the_old_ones_shards()
{
    let mut world = World::start(Config { shards: 2, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.churn(50, 6, 20).await;
    world.exact(6).await;
    world.fresh().await;
    let stream = |specification| json!({"TableName": "likes", "StreamSpecification": specification});
    world.store.call("UpdateTable", stream(json!({"StreamEnabled": false}))).await;
    let readiness = running.host().readiness().clone();
    let began = Instant::now();
    loop {
        let report = format!("{:?}", readiness.report().conditions.get("stream_shards"));
        if report.contains("has no stream") {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{report}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let view = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
    world.store.call("UpdateTable", stream(view)).await;
    world.fresh().await;
    world.churn(50, 6, 20).await;
    world.exact(6).await;
    readiness.until_ready().await;
    assert_eq!(world.losses().await, ["unfollowed"]);
    let changes = Changes::new(&world.store.repeating(5));
    let old = loop {
        let every = changes.every_shard().await.unwrap();
        let old: Vec<_> = every.into_iter().filter(|stored| stored.closed.is_some()).collect();
        if old.len() == 2 {
            break old;
        }
        assert!(began.elapsed() < DEADLINE, "the old stream's shards are never closed: {old:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    for stored in &old {
        let id = json!({"id": {"S": format!("changes/shard/{}", stored.shard)}});
        world.store.edit("checkpoints", id, "closed", number(1)).await;
    }
    while changes.every_shard().await.unwrap().len() > 2 {
        assert!(began.elapsed() < DEADLINE, "the old stream's shards are never forgotten");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stop(vec![running]).await;
}
