//! Tests how the API adds up a counter over several AWS Regions, where each counts for its own users. The API under
//! test is in the Region `eu`.

use std::time::Duration;

use tally_adapters::dynamodb::regions::Regions;
use tally_core::cached::{Cache as _, StandingAt, Value};
use tally_core::ids::{CounterId, CounterKind, CounterName};
use tally_core::time::UnixMillis;
use tally_count_api::read::Answer;
use tally_emulator::{Fault, Rule};
use tokio::time::{sleep, timeout};

use super::world::{
    Beginning, SECOND, World, after, at, behind_loss, counter, likes, name, partition, region, stand_remote, standing,
};

/// Starts with this Region and `us`. Both have everything of `p` up to a second after the beginning.
async fn two(cached: bool) -> (World, CounterId) {
    World::counted(Beginning { cached, remotes: &["us"], ..Beginning::default() }).await
}

impl World {
    /// The entry of `us`.
    async fn put(&self, id: &CounterId, likes: i64, version: u64) {
        let value = Value { likes, version: at(version), ..Value::default() };
        Regions::new(&self.store.connection).put_entry(&id.in_region(&region("us")), &value, self.now()).await.unwrap();
    }

    /// The standing of the entries of `us`, which the API has read.
    async fn us_stood(&self, id: &CounterId, standing: &StandingAt) {
        stand_remote(&self.store.connection, "us", partition(id), Some(standing)).await;
        let entry = id.in_region(&region("us"));
        let read = async {
            while self.standings.known().of(&entry).is_none_or(|known| **known != *standing) {
                sleep(SECOND / 20).await;
            }
        };
        timeout(60 * SECOND, read).await.expect("the API reads it");
    }

    /// Returns the answer, which every way to read it gives.
    async fn says(&self, id: &CounterId) -> Answer {
        let answer = self.count(id).await;
        let ids = std::slice::from_ref(id);
        let read = self.reader.read(ids).await.remove(0).unwrap();
        let others = [
            self.reader.counts(&[likes("another"), id.clone()]).await.0.remove(1).unwrap(),
            self.standings.answer(id, &read),
            self.reader.detailed(id).await.unwrap().answer,
            self.reader.rendered(id).await.unwrap().0.answer,
        ];
        assert!(others.iter().all(|other| *other == answer), "{answer:?} {others:?}");
        answer
    }
}

/// Returns the number, whether it is exact, its `as_of`, whether it is fresh, and the Regions that are behind.
fn said(answer: Answer) -> (i64, bool, UnixMillis, bool, Vec<String>) {
    let Answer { served, fresh, .. } = answer;
    (served.likes, served.exact, served.as_of, fresh, answer.into_behind())
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_absent_is_0_beside_a_standing_that_is_believed_and_not_known_without_one() {
    let (world, p) = two(false).await;
    assert_eq!(said(world.says(&p).await), (3, false, UnixMillis(0), false, vec!["us".to_owned()]));
    stand_remote(&world.store.connection, "us", partition(&p), None).await;
    sleep(2 * SECOND).await;
    assert_eq!(said(world.says(&p).await), (3, false, UnixMillis(0), false, vec!["us".to_owned()]));
    world.put(&p, 4, 7).await;
    assert_eq!(said(world.says(&p).await), (7, false, UnixMillis(0), false, vec!["us".to_owned()]));
    let absent = likes("absent");
    world.stood(&absent, &standing(6, SECOND)).await;
    world.us_stood(&absent, &standing(8, SECOND)).await;
    assert_eq!(said(world.says(&absent).await), (0, true, after(SECOND), true, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_named_while_the_standings_are_being_read_is_added_up_beside_them() {
    let (world, p) = World::counted(Beginning::default()).await;
    let slow = Rule::new(Fault::Latency { min_ms: 900, max_ms: 900 }).on("BatchGetItem").table("checkpoints");
    world.store.faults([slow]);
    while world.store.emulator.stats().fired("latency") == 0 {
        sleep(SECOND / 100).await;
    }
    name(&world.store.connection, &["us"]).await;
    world.stood(&p, &standing(7, 2 * SECOND)).await;
    let answer = world.count(&p).await;
    assert!(!answer.served.exact, "nothing is known of the other Region: {answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_behind_is_named_and_its_entry_may_be_ten_seconds_older_than_this_ones() {
    let (world, p) = two(false).await;
    world.us_stood(&p, &standing(8, SECOND)).await;
    sleep(15 * SECOND).await;
    world.stood(&p, &standing(7, 15 * SECOND)).await;
    sleep(after(21 * SECOND).since(world.now())).await;
    assert_eq!(said(world.says(&p).await), (3, true, after(SECOND), true, vec![]));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(said(world.says(&p).await), (3, true, after(SECOND), false, vec!["us".to_owned()]));
    sleep(5 * SECOND).await;
    world.us_stood(&p, &standing(9, 25 * SECOND)).await;
    let behind = said(world.says(&p).await);
    assert_eq!(behind, (3, true, after(15 * SECOND), false, vec!["eu".to_owned()]), "this Region is one of them");
}

#[tokio::test(start_paused = true)]
async fn a_loss_in_one_region_makes_no_number_exact_until_it_is_closed_there() {
    let (world, p) = two(false).await;
    world.put(&p, 4, 7).await;
    world.us_stood(&p, &behind_loss(standing(8, SECOND), 6, true)).await;
    let answer = world.says(&p).await;
    assert_eq!(answer.own().likes, 3);
    assert_eq!(said(answer), (7, false, after(SECOND), true, vec![]));
    let by_region = world.reader.detailed(&p).await.unwrap().regions;
    let exact: Vec<_> = by_region.iter().map(|(name, answer)| (name.as_str(), answer.served.exact)).collect();
    assert_eq!(exact, [("eu", true), ("us", false)]);
    world.us_stood(&p, &behind_loss(standing(9, SECOND), 6, false)).await;
    assert!(world.says(&p).await.served.exact);
}

#[tokio::test(start_paused = true)]
async fn a_set_below_zero_in_another_region_adds_nothing_is_not_exact_and_is_not_recounted_here() {
    let (world, p) = two(false).await;
    let score = CounterId { name: CounterName::new("score", CounterKind::Sum).unwrap(), ..p.clone() };
    world.write(&score, counter(3, 5)).await;
    world.us_stood(&p, &standing(8, SECOND)).await;
    for id in [&p, &score] {
        world.put(id, -5, 7).await;
    }
    assert_eq!(said(world.says(&p).await), (3, false, after(SECOND), true, vec![]));
    assert_eq!(said(world.says(&score).await), (-2, true, after(SECOND), true, vec![]));
    sleep(SECOND).await;
    assert_eq!(world.queued().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_sum_that_has_no_room_is_not_exact() {
    let (world, p) = two(false).await;
    world.us_stood(&p, &standing(8, SECOND)).await;
    world.put(&p, i64::MAX - 3, 7).await;
    assert_eq!(said(world.says(&p).await), (i64::MAX, true, after(SECOND), true, vec![]));
    world.put(&p, i64::MAX, 8).await;
    assert_eq!(said(world.says(&p).await), (i64::MAX, false, after(SECOND), true, vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_asked_for_this_regions_entries_alone_and_all_that_it_does_not_have_is_one_read() {
    let (world, p) = two(true).await;
    let mut hold = world.take_over(&p, &standing(6, SECOND)).await;
    world.tell(&mut hold, &p, &counter(3, 5), None).await;
    world.put(&p, 4, 7).await;
    world.us_stood(&p, &standing(8, SECOND)).await;
    world.slow_down(SECOND / 10);
    assert_eq!((world.count(&p).await.served.likes, world.cache.gets(), world.slow_reads()), (7, 1, 1));
    let entry = p.in_region(&region("us"));
    sleep(SECOND).await;
    let got = world.cache.inner.get(partition(&p), &[entry]).await.unwrap();
    assert_eq!(got.values, [None], "it is not filled");
    let (read, _) = world.reader.counts(&[p.clone(), likes("q"), p]).await;
    assert!(read.iter().all(Result::is_ok));
    assert_eq!(world.slow_reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_other_regions_nothing_more_is_read_and_with_them_one_call_a_second() {
    let calls = async |remotes: &'static [&'static str]| {
        let world = Box::pin(World::with(Beginning { remotes, ..Beginning::default() })).await;
        let all = || ["GetItem", "BatchGetItem", "Query", "Scan"].map(|operation| world.store.requests(operation));
        let before = all();
        sleep(10 * SECOND).await;
        let after = all();
        std::array::from_fn::<u64, 4, _>(|nth| after[nth] - before[nth])
    };
    let alone = calls(&[]).await;
    // Each read has the definitions, the records of two topics, all standings, and all claims.
    let rounds = alone[1] / 2;
    assert!(rounds >= 9 && alone == [3 * rounds, 2 * rounds, 0, 0], "{alone:?}");
    assert_eq!(calls(&["us", "ap"]).await, [3 * rounds, 3 * rounds, 0, 0]);
}
