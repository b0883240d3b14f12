//! Tests the stored claims, by which one consumer owns the rows of a Kafka partition, and the stored topics: what is
//! stored, and what a late copy of a request changes.

use std::time::Duration;

use tally_adapters::dynamodb::claims::Claims;
use tally_core::register::{Claim, Found, Generation, Kept, LastRead, Topic};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition, TopicId};
use tally_emulator::{Fault as Injected, Rule};
use tally_service::Clock;
use tally_testkit::{BEGAN, Store};

const TOMBSTONES: Duration = Duration::from_secs(24 * 3_600);

fn partition(index: u32) -> Partition {
    Partition { topic: "likes".into(), index }
}

fn topic() -> Topic {
    Topic::first(TopicId("one".into()), vec![Offset(3), Offset(5)])
}

fn claims(store: &Store) -> Claims {
    Claims::new(&store.connection, Clock::starting_at(BEGAN))
}

/// The first state stored under a claim.
fn begun(claim: &Claim) -> Kept {
    let log = Log { topic: topic().id, start: Offset(0), end: Offset(100) };
    let found = Found { claim, topic: &topic(), index: 0, log: &log, partitions: 2, committed: None, there: None };
    found.start(BEGAN, TOMBSTONES).unwrap().kept
}

fn come_to(kept: &Kept, safe: u64, safe_at: Option<u64>) -> Kept {
    let last = Some(LastRead { at: Offset(safe), fingerprint: u64::MAX });
    Kept { last, ..kept.come_to([Offset(safe); 2], safe_at.map(UnixMillis), BEGAN, TOMBSTONES) }
}

#[tokio::test(start_paused = true)]
async fn each_take_over_raises_the_claim_and_finds_the_state_of_the_previous_one() {
    let store = Store::start().await;
    let claims = claims(&store);
    assert_eq!(claims.read(&partition(0)).await, Ok(Claim::default()));
    let (first, _) = claims.raise(&partition(0)).await.unwrap();
    assert_eq!(first, Claim { n: 1, kept: None });
    let mut kept = begun(&first);
    for (safe, safe_at) in [(7, None), (9, Some(8)), (12, Some(11))] {
        kept = come_to(&kept, safe, safe_at);
        assert!(claims.keep(&partition(0), 1, &kept).await.unwrap().is_some());
        assert_eq!(claims.read(&partition(0)).await, Ok(Claim { n: 1, kept: Some(kept.clone()) }));
    }
    let (second, _) = claims.raise(&partition(0)).await.unwrap();
    assert_eq!(second, Claim { n: 2, kept: Some(kept.clone()) });
    // A replay forgets the time by which the rows were complete.
    let replay = Kept { safe_at: None, replay: Some(Offset(50)), ..come_to(&kept, 13, None) };
    assert!(claims.keep(&partition(0), 2, &replay).await.unwrap().is_some());
    assert_eq!(claims.read(&partition(0)).await.unwrap().kept, Some(replay));
    assert_eq!(claims.read(&partition(1)).await, Ok(Claim::default()), "each partition has its own");
}

#[tokio::test(start_paused = true)]
async fn a_raised_claim_stores_nothing_for_its_previous_owner() {
    let store = Store::start().await;
    let claims = claims(&store);
    let kept = begun(&claims.raise(&partition(0)).await.unwrap().0);
    claims.raise_all("likes", 2).await.unwrap();
    assert!(claims.keep(&partition(0), 1, &kept).await.unwrap().is_none());
    assert_eq!(claims.read(&partition(0)).await, Ok(Claim { n: 2, kept: None }));
    assert_eq!(claims.read(&partition(1)).await, Ok(Claim { n: 1, kept: None }));
    assert!(claims.keep(&partition(5), 1, &kept).await.unwrap().is_none(), "no claim is there to be confirmed");
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_claim_is_not_replaced_by_an_earlier_one_that_arrives_late() {
    let store = Store::start().await;
    let claims = claims(&store);
    let first = come_to(&begun(&claims.raise(&partition(0)).await.unwrap().0), 7, None);
    store.faults([Rule::new(Injected::Ghost { max_delay_ms: 60_000, hang_ms: 0 }).on("UpdateItem").nth(1)]);
    assert!(claims.keep(&partition(0), 1, &first).await.is_err());
    let second = come_to(&first, 9, None);
    assert!(claims.keep(&partition(0), 1, &second).await.unwrap().is_some());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(claims.read(&partition(0)).await.unwrap().kept, Some(second.clone()));
    assert_eq!(store.emulator.stats().ghosts_applied, 1);
    // A repeated request whose first answer was lost is confirmed.
    assert!(claims.keep(&partition(0), 1, &second).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_stored_once_and_replaced_only_by_a_process_that_knows_it() {
    let store = Store::start().await;
    let claims = claims(&store);
    assert_eq!(claims.topic("likes").await, Ok(None));
    assert_eq!(claims.begin_topic("likes", &topic()).await, Ok(topic()));
    let other = Topic::first(TopicId("two".into()), vec![Offset(0)]);
    assert_eq!(claims.begin_topic("likes", &other).await, Ok(topic()), "what is there stays");
    let paused = Topic { is_paused: true, ..topic() };
    assert_eq!(claims.replace_topic("likes", &topic(), &paused).await, Ok(true));
    assert_eq!(claims.replace_topic("likes", &topic(), &other).await, Ok(false));
    assert_eq!(claims.topic("likes").await, Ok(Some(paused.clone())));
    let mut grown = topic();
    grown.generations.push(Generation { number: 12, begins: vec![Offset(30), Offset(50), Offset(0)] });
    assert_eq!(claims.replace_topic("likes", &paused, &grown).await, Ok(true));
    assert_eq!(claims.replace_topic("likes", &paused, &grown).await, Ok(true), "a repetition finds itself");
    assert_eq!(claims.topic("likes").await, Ok(Some(grown.clone())));
    let left_out = Topic { sums_from: vec![Offset(30), Offset(50), Offset(7)], ..grown.clone() };
    assert_eq!(claims.replace_topic("likes", &grown, &left_out).await, Ok(true));
    assert_eq!(claims.topic("likes").await, Ok(Some(left_out)));
}
