//! Tests of `tally draw verify`, which checks the record of who brought a counter to a threshold against the events in
//! Kafka: which winner it finds, and what it says if events have dead letters, are gone, or are in another topic.

use async_trait::async_trait;
use tally_adapters::dynamodb::counters::{Counters, Crossed, Update};
use tally_adapters::memory::log::Broker;
use tally_consumer::letter::Writer;
use tally_core::definitions::Entry;
use tally_core::event::Rejection;
use tally_core::fold::Counter;
use tally_core::ports::log::{Outgoing, Records};
use tally_core::register::{Claim, Generation, Kept};
use tally_core::topic::TopicId;
use tally_testkit::Store;

use super::*;

const TOPIC: &str = "likes";
const LETTERS: &str = "likes.dlq";

/// A topic of events, a topic of dead letters, and tables.
struct Stage {
    broker: Broker,
    store: Store,
    topic: TopicId,
}

fn partition() -> Partition {
    Partition { topic: TOPIC.into(), index: 2 }
}

fn definitions() -> Definitions {
    Definitions::new(&[Entry::sum("views", "view", None)]).unwrap()
}

fn views() -> CounterId {
    "p\u{1f}+views".parse().unwrap()
}

fn likes() -> CounterId {
    "p".parse().unwrap()
}

fn of_sum(from: u64, to: u64, nth: i64, gained: i64) -> Winner {
    Winner::Events(Events { topic: TOPIC.into(), partition: 2, generation: 1, from, to, nth, gained })
}

fn member() -> Winner {
    Winner::Member(MemberKey::new("u").unwrap())
}

fn milestone(by: Winner) -> Milestone {
    Milestone { n: 10, by, at: UnixMillis(60_000), lag: 5, version: 3, exact: true, skipped: 0 }
}

impl Stage {
    /// Begins with these records in partition 2, from offset 0 on.
    async fn of(values: &[&str]) -> Self {
        let broker = Broker::new();
        broker.create_topic(TOPIC, 4);
        broker.create_topic(LETTERS, 1);
        let log = broker.reader("test", TOPIC).log(&partition()).await.unwrap();
        let stage = Self { broker, store: Store::start().await, topic: log.topic };
        stage.grow(values).await;
        stage
    }

    /// Appends records, which are applied at once.
    async fn grow(&self, values: &[&str]) {
        for value in values {
            let value = Some(value.as_bytes());
            let record = Outgoing { topic: TOPIC, partition: Some(2), key: None, value, headers: &[] };
            self.broker.append(record, UnixMillis(50_000)).unwrap();
        }
        let log = self.broker.reader("test", TOPIC).log(&partition()).await.unwrap();
        self.is(&self.topic, 0, log.end).await;
    }

    fn claims(&self) -> Claims {
        Claims::new(&self.store.connection, tally_service::Host::new("draw").clock())
    }

    /// Stores that the rows come from the topic `id`, whose offsets have begun anew `anew` times, up to `greatest`.
    async fn is(&self, id: &TopicId, anew: u16, greatest: Offset) {
        let claims = self.claims();
        let generations = (0..=anew).map(|n| Generation { number: n + 1, begins: vec![Offset(0); 4] });
        let topic =
            Topic { id: id.clone(), generations: generations.collect(), sums_from: Vec::new(), is_paused: false };
        let seen = claims.begin_topic(TOPIC, &topic).await.unwrap();
        assert!(claims.replace_topic(TOPIC, &seen, &topic).await.unwrap());
        let (Claim { n, kept }, _) = claims.raise(&partition()).await.unwrap();
        let at = UnixMillis(kept.map_or(0, |kept| kept.at.0) + 1);
        let kept = Kept { at, ..Kept::first(&topic, greatest) };
        assert!(claims.keep(&partition(), n, &kept).await.unwrap().is_some());
    }

    async fn letter(&self, offset: u64) {
        self.letter_of("ours", offset, 50_000).await;
    }

    /// Writes a dead letter of `deployment` about the record at `offset` that was written at `at`.
    async fn letter_of(&self, deployment: &str, offset: u64, at: u64) {
        let mut records = Records::default();
        records.push(Offset(offset), UnixMillis(at), None, Some(b"{"), []);
        let rejection = Rejection::RefusedByStore("too busy".to_owned());
        let writer = Writer { producer: &self.broker, topic: LETTERS, deployment: Some(deployment) };
        writer.write(&partition(), records.get(0).unwrap(), &rejection).await.unwrap();
    }

    /// Records that `by` reached the threshold.
    async fn record(&self, counter: &CounterId, by: Winner) {
        let update = Update { counter: counter.clone(), before: None, after: Counter::default() };
        let crossed = Counters::new(&self.store.connection).cross(&update, &[milestone(by)]).await;
        assert_eq!(crossed, Ok(Crossed::Stored));
    }

    async fn verify(&self, counter: CounterId) -> Found {
        self.verify_in(Arc::new(self.broker.reader("test", TOPIC)), counter).await
    }

    async fn verify_in(&self, topic: Arc<dyn TopicReader>, counter: CounterId) -> Found {
        let draw = Draw {
            counter,
            n: 10,
            milestones: Recounts::new(&self.store.connection),
            claims: self.claims(),
            deployment: "ours".to_owned(),
            topic_name: TOPIC.to_owned(),
            topic,
            letters: Arc::new(self.broker.reader("test", LETTERS)),
            definitions: definitions(),
        };
        draw.verify().await.unwrap()
    }
}

/// The topic in use: behind each look an event comes in and is applied.
struct InUse(Arc<Stage>);

#[async_trait]
impl TopicReader for InUse {
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>> {
        let logs = self.0.broker.reader("test", TOPIC).logs().await;
        self.0.grow(&[OTHER]).await;
        logs
    }

    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
        self.0.broker.reader("test", TOPIC).read(partition, from, to).await
    }

    async fn offset_at(&self, _: &Partition, _: UnixMillis) -> Outcome<Option<Offset>> {
        unreachable!("a draw is read by offsets")
    }

    async fn bookmark(&self, _: &Partition) -> Outcome<Option<Offset>> {
        unreachable!("a draw is read from its start")
    }

    async fn mark(&self, _: &Partition, _: Offset) -> Outcome<()> {
        unreachable!("a draw is read once")
    }
}

#[tokio::test]
async fn a_draw_is_verified_while_other_events_come_in() {
    let stage = Arc::new(Stage::of(&[VIEW, LIKE]).await);
    for (counter, by) in [(views(), of_sum(0, 1, 1, 2)), (likes(), member())] {
        stage.record(&counter, by).await;
        let found = stage.verify_in(Arc::new(InUse(Arc::clone(&stage))), counter).await;
        assert!(matches!(found, Found::True(_)), "{found:?}");
    }
}

const VIEW: &str = r#"{"post_id":"p","action":"view","n":2}"#;
const OTHER: &str = r#"{"post_id":"q","action":"view"}"#;
const LIKE: &str = r#"{"post_id":"p","user_id":"u","action":"like"}"#;
const POISON: &str = "{";

fn offset(found: &Found) -> u64 {
    let Found::True(told) = found else { panic!("{found:?}") };
    serde_json::from_str::<serde_json::Value>(told).unwrap()["offset"].as_u64().unwrap()
}

#[tokio::test]
async fn the_event_with_which_the_amounts_reach_what_was_needed_is_the_winner() {
    for (nth, place) in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 4)] {
        let stage = Stage::of(&[OTHER, VIEW, LIKE, VIEW, VIEW, VIEW]).await;
        stage.record(&views(), of_sum(0, 5, nth, 6)).await;
        assert_eq!(offset(&stage.verify(views()).await), place, "{nth}");
    }
}

#[tokio::test]
async fn poison_and_what_has_a_dead_letter_do_not_shift_it() {
    let stage = Stage::of(&[VIEW, POISON, VIEW, VIEW]).await;
    stage.letter(1).await;
    stage.letter(2).await;
    stage.record(&views(), of_sum(0, 4, 3, 4)).await;
    assert_eq!(offset(&stage.verify(views()).await), 3);
    let stage = Stage::of(&[VIEW, VIEW, VIEW]).await;
    stage.letter(1).await;
    stage.record(&views(), of_sum(0, 3, 3, 6)).await;
    assert_eq!(offset(&stage.verify(views()).await), 1, "it has a letter, and counted all the same");
}

/// Records a milestone over three views, makes `change`, and returns what the verification finds.
async fn after(by: Winner, change: impl AsyncFnOnce(&Stage)) -> Found {
    let stage = Stage::of(&[VIEW, VIEW, VIEW]).await;
    stage.record(&views(), by).await;
    change(&stage).await;
    stage.verify(views()).await
}

#[track_caller]
fn is_gone(found: &Found, why: &str) {
    assert!(matches!(found, Found::Gone(told) if told.contains(why)), "{found:?}");
}

#[tokio::test]
async fn a_log_that_is_cut_or_another_is_gone_and_what_was_left_out_of_sums_is_left_out_of_the_draw() {
    let of = || of_sum(0, 3, 3, 6);
    assert_eq!(offset(&after(of(), async |_| {}).await), 1);
    let cut = after(of(), async |stage| stage.broker.trim(TOPIC, 2, 2)).await;
    is_gone(&cut, "begins at 2");
    let elsewhere = Events { topic: TOPIC.into(), partition: 9, generation: 1, from: 0, to: 1, nth: 1, gained: 2 };
    is_gone(&after(Winner::Events(elsewhere), async |_| {}).await, "no log");
    let another = async |stage: &Stage| stage.is(&TopicId("another".into()), 0, Offset(3)).await;
    is_gone(&after(of(), another).await, "another topic");
    let anew = async |stage: &Stage| stage.is(&stage.topic, 1, Offset(3)).await;
    is_gone(&after(of(), anew).await, "begun anew");
    let shorter = async |stage: &Stage| stage.is(&stage.topic, 0, Offset(4)).await;
    is_gone(&after(of(), shorter).await, "applied up to 4");
    let sums_from_1 = async |stage: &Stage| {
        let seen = stage.claims().topic(TOPIC).await.unwrap().unwrap();
        let topic = Topic { sums_from: vec![Offset(1); 4], ..seen.clone() };
        assert!(stage.claims().replace_topic(TOPIC, &seen, &topic).await.unwrap());
    };
    assert_eq!(offset(&after(of_sum(0, 3, 3, 4), sums_from_1).await), 2, "an operator left the first out of sums");
}

#[test]
fn what_the_events_of_a_sum_come_to_with_and_without_those_that_have_a_letter_decides() {
    for (without, with, gained, letters_are_lost, expected) in [
        (6, 6, 6, false, "true"),
        // One that has a letter counted all the same.
        (4, 6, 6, false, "true"),
        // The letters that are left are enough.
        (4, 6, 4, true, "true"),
        // Two have a letter, and one of them counted: the log does not say which.
        (2, 6, 4, false, "some of those counted"),
        // More in the log than in the record is no sign that it was altered, but less is.
        (6, 6, 4, false, "were skipped"),
        (6, 6, 4, true, "lost letters"),
        (2, 6, 7, false, "false"),
    ] {
        let sum = |total| {
            let mut sum = Sum::default();
            sum.add(total, 2, || Place { partition: partition(), offset: Offset(0), at: UnixMillis(0) });
            sum
        };
        let events = Events { topic: TOPIC.into(), partition: 2, generation: 1, from: 0, to: 3, nth: 2, gained };
        let milestone = milestone(Winner::Events(events.clone()));
        let told = match judged(&milestone, &events, &sum(without), &sum(with), letters_are_lost) {
            Found::True(_) => "true".to_owned(),
            Found::False(_) => "false".to_owned(),
            Found::Gone(why) => why,
            Found::Unread(fault) => fault.to_string(),
        };
        assert!(told.contains(expected), "{without} {with} {gained} {letters_are_lost}: {told}");
    }
}

#[tokio::test]
async fn a_member_was_put_there_by_an_event_of_the_log() {
    let stage = Stage::of(&[VIEW]).await;
    stage.record(&likes(), member()).await;
    assert!(matches!(stage.verify(likes()).await, Found::False(_)));
    stage.grow(&[LIKE, POISON]).await;
    assert_eq!(offset(&stage.verify(likes()).await), 1);
    stage.letter(1).await;
    is_gone(&stage.verify(likes()).await, "likes/2/1 puts u there and has a dead letter");
    stage.broker.trim(TOPIC, 2, 2);
    is_gone(&stage.verify(likes()).await, "no event of u is left");
    let stage = Stage::of(&[LIKE]).await;
    stage.record(&likes(), member()).await;
    stage.letter(0).await;
    stage.broker.trim(LETTERS, 0, 1);
    is_gone(&stage.verify(likes()).await, "lost letters");
}

#[tokio::test]
async fn a_letter_of_another_deployment_or_of_an_older_topic_is_about_another_record() {
    let stage = Stage::of(&[LIKE, VIEW, VIEW]).await;
    stage.letter_of("theirs", 0, 50_000).await;
    stage.letter_of("theirs", 1, 50_000).await;
    stage.letter_of("ours", 0, 40_000).await;
    stage.letter_of("ours", 2, 40_000).await;
    stage.record(&likes(), member()).await;
    assert_eq!(offset(&stage.verify(likes()).await), 0);
    stage.record(&views(), of_sum(0, 3, 3, 2)).await;
    is_gone(&stage.verify(views()).await, "were skipped");
}

#[tokio::test]
async fn an_event_that_claims_to_be_younger_than_the_record_decides_nothing() {
    let stage = Stage::of(&[]).await;
    let value = Some(LIKE.as_bytes());
    let like = Outgoing { topic: TOPIC, partition: Some(2), key: None, value, headers: &[] };
    stage.broker.append(like, UnixMillis(70_000)).unwrap();
    stage.record(&likes(), member()).await;
    is_gone(&stage.verify(likes()).await, "a clock is wrong");
    let like = Outgoing { topic: TOPIC, partition: Some(2), key: None, value, headers: &[] };
    stage.broker.append(like, UnixMillis(60_900)).unwrap();
    assert_eq!(offset(&stage.verify(likes()).await), 1, "records say when they were written to the second");
}

#[tokio::test]
async fn of_a_threshold_without_a_winner_the_log_has_nothing_to_say() {
    let stage = Stage::of(&[]).await;
    stage.record(&likes(), Winner::Unwitnessed).await;
    assert!(matches!(stage.verify(likes()).await, Found::True(told) if told.contains("none")));
}

#[test]
fn a_counters_own_topic_has_letters_of_its_own_unless_one_topic_was_named_for_all() {
    assert_eq!(letters_beside("likes", "likes", "bad"), "bad");
    assert_eq!(letters_beside("views", "likes", "likes.dlq"), "views.dlq");
    assert_eq!(letters_beside("views", "likes", "bad"), "bad");
}

#[test]
fn a_true_record_is_shown_field_by_field() {
    let told = said("true", r#"{"n":10,"user":"u\u001b"}"#, CounterKind::Sum);
    assert_eq!(told, "true: the record is what the log says\nn     10\nuser  \"u\\u001b\"\n");
    let of_set = said("true", r#"{"n":10}"#, CounterKind::Set);
    assert!(of_set.contains("it does not prove the order"), "{of_set}");
    assert_eq!(said("gone", "the log is cut", CounterKind::Sum), "gone: the log is cut");
}
