//! Tests what every cache of counters has to do, in memory or in Redis. A cache holds the counters of each partition of
//! the log `changes`, and the partition's standing: the time up to which all changes are counted. What it holds is read
//! as it was written, and no writer with an earlier standing of the same deployment takes a partition over. The models
//! in core show that the rules of a cache keep stale values out; `redis/scripts.rs` compares the scripts that Redis runs
//! with these rules. Two tests are of the cache in memory alone: when it forgets.

use std::time::Duration;

use tally_adapters::memory::PartitionCache;
use tally_core::cached::{Cache, Got, StandingAt, TakeOver, Told, Value};
use tally_core::changes::{DeploymentId, LossNumber, Place, Standing};
use tally_core::ids::CounterId;
use tally_core::time::UnixMillis;

use crate::likes::post;

/// Works with any cache in which `partition` and the next few are empty.
pub(crate) async fn contract(cache: &dyn Cache, partition: u32) {
    many_values_are_written_before_the_standing(cache, partition).await;
    values_are_read_as_they_were_written(cache, partition + 1).await;
    versions_are_compared_as_numbers(cache, partition + 2).await;
    a_partition_with_a_later_standing_is_not_taken_over(cache, partition + 3).await;
    another_deployments_standing_is_replaced_whatever_its_place(cache, partition + 4).await;
}

/// The deployment of the tests.
pub(crate) fn own() -> DeploymentId {
    DeploymentId("own".into())
}

pub(crate) fn at(place: u64) -> StandingAt {
    let standing = Standing { as_of: Some(UnixMillis(1000 + place)), ..Standing::default() };
    StandingAt { at: Place::from_stored(place), standing }
}

pub(crate) fn value(version: u64) -> Value {
    Value { likes: 7, version: Place::from_stored(version), ..Value::default() }
}

pub(crate) async fn take_over(cache: &dyn Cache, partition: u32, place: u64) -> TakeOver {
    cache.take_over(partition, &own(), &at(place)).await.unwrap().unwrap()
}

pub(crate) async fn fill(cache: &dyn Cache, partition: u32, post: &CounterId, value: Value) {
    let token = cache.begin_fill(partition, post).await.unwrap().unwrap();
    assert_eq!(cache.fill(partition, post, &token, &value).await, Ok(true));
}

pub(crate) async fn got(cache: &dyn Cache, partition: u32, post: &CounterId) -> (Option<StandingAt>, Option<Value>) {
    let (stated, mut values) = read(cache, partition, std::slice::from_ref(post)).await;
    (stated, values.remove(0))
}

/// The standing and the values of some counters.
async fn read(cache: &dyn Cache, partition: u32, posts: &[CounterId]) -> (Option<StandingAt>, Vec<Option<Value>>) {
    let Got { taken, stated, values } = cache.get(partition, posts).await.unwrap();
    assert_eq!(taken.map(|taken| taken.of), stated.as_ref().map(|_| own()));
    (stated, values)
}

async fn tell(cache: &dyn Cache, partition: u32, hold: &mut TakeOver, told: &[(&CounterId, u64)]) -> Told {
    let values: Vec<_> = told.iter().map(|(post, version)| ((*post).clone(), value(*version))).collect();
    cache.tell(partition, hold, &values, None).await.unwrap()
}

async fn many_values_are_written_before_the_standing(cache: &dyn Cache, partition: u32) {
    let posts: Vec<_> = (0..600).map(|n| post(&format!("p-{n}"))).collect();
    let mut hold = take_over(cache, partition, 1).await;
    for post in posts.iter().step_by(2) {
        fill(cache, partition, post, value(1)).await;
    }
    let values: Vec<_> = posts.iter().map(|post| (post.clone(), value(2))).collect();
    assert_eq!(cache.tell(partition, &mut hold, &values, Some(&at(2))).await, Ok(Told::Written(300)));
    let (stated, values) = read(cache, partition, &posts).await;
    assert_eq!(stated, Some(at(2)));
    for (nth, found) in values.into_iter().enumerate() {
        assert_eq!(found, (nth % 2 == 0).then(|| value(2)), "{nth}");
    }
    assert_eq!(cache.tell(partition, &mut hold, &[], Some(&at(3))).await, Ok(Told::Written(0)));
}

async fn values_are_read_as_they_were_written(cache: &dyn Cache, partition: u32) {
    let open = [LossNumber(5), LossNumber(u64::MAX)].into();
    let full = Standing { as_of: Some(UnixMillis(9)), loss: Some(Place::from_stored(2)), open };
    let last = Place::from_stored(u64::MAX);
    let rare = Value { likes: i64::MIN, version: last, gap: Some(Place::from_stored(2)), doubtful: true };
    let posts =
        ["a b", "{}", "{9}", "{", "x:y", "\u{2028}\u{1f44d}", "x y $5 FLUSHALL", "\"'); redis.call('FLUSHALL') --"]
            .map(post);
    let stated =
        [StandingAt { at: Place::default(), standing: Standing::default() }, StandingAt { at: last, standing: full }];
    for stated in stated {
        cache.take_over(partition, &own(), &stated).await.unwrap().unwrap();
        for post in &posts {
            assert_eq!(got(cache, partition, post).await, (Some(stated.clone()), None));
            fill(cache, partition, post, rare).await;
        }
        assert_eq!(read(cache, partition, &posts).await, (Some(stated), vec![Some(rare); posts.len()]));
    }
}

/// Versions of the same and of different lengths, and beyond the range of Lua's numbers.
async fn versions_are_compared_as_numbers(cache: &dyn Cache, partition: u32) {
    let post = post("p");
    let mut hold = take_over(cache, partition, 0).await;
    fill(cache, partition, &post, value(9)).await;
    let mut version = 9;
    for offered in [10, 9, 8, 9_007_199_254_740_992, 9_007_199_254_740_993, 9_007_199_254_740_992, 10, u64::MAX] {
        let written = usize::from(offered > version);
        assert_eq!(tell(cache, partition, &mut hold, &[(&post, offered)]).await, Told::Written(written), "{offered}");
        version = version.max(offered);
        assert_eq!(got(cache, partition, &post).await.1, Some(value(version)));
    }
}

async fn a_partition_with_a_later_standing_is_not_taken_over(cache: &dyn Cache, partition: u32) {
    let mut hold = take_over(cache, partition, 10).await;
    assert_eq!(cache.take_over(partition, &own(), &at(9)).await, Ok(None));
    assert_eq!(
        tell(cache, partition, &mut hold, &[]).await,
        Told::Written(0),
        "the partition is still the first one's"
    );
    let mut other = take_over(cache, partition, 10).await;
    assert_eq!(tell(cache, partition, &mut hold, &[]).await, Told::Lost);
    assert_eq!(tell(cache, partition, &mut other, &[]).await, Told::Written(0));
}

async fn another_deployments_standing_is_replaced_whatever_its_place(cache: &dyn Cache, partition: u32) {
    let (post, other) = (post("p"), DeploymentId("other".into()));
    let mut theirs = cache.take_over(partition, &other, &at(10)).await.unwrap().unwrap();
    fill(cache, partition, &post, value(12)).await;
    let found = cache.get(partition, &[]).await.unwrap().taken.unwrap();
    assert_eq!(found.of, other, "a reader sees the deployment");
    let mut hold = take_over(cache, partition, 9).await;
    assert_eq!(got(cache, partition, &post).await, (Some(at(9)), None), "its values do not count");
    assert_eq!(tell(cache, partition, &mut theirs, &[(&post, 13)]).await, Told::Lost);
    let token = cache.begin_fill(partition, &post).await.unwrap().unwrap();
    assert_ne!(token.number(), found.number, "a reader of the other deployment drops the token");
    assert_eq!(tell(cache, partition, &mut hold, &[(&post, 10)]).await, Told::Written(1));
    assert!(cache.take_over(partition, &other, &at(3)).await.unwrap().is_some());
    assert_eq!(tell(cache, partition, &mut hold, &[(&post, 11)]).await, Told::Lost);
}

#[tokio::test]
async fn in_memory() {
    contract(&PartitionCache::default(), 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_fill_token_expires() {
    let (cache, post) = (PartitionCache::default(), post("p"));
    take_over(&cache, 0, 3).await;
    let late = cache.begin_fill(0, &post).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cache.fill(0, &post, &late, &value(3)).await, Ok(false));
    let token = cache.begin_fill(0, &post).await.unwrap().unwrap();
    assert_eq!(cache.fill(0, &post, &late, &value(3)).await, Ok(false), "nor does it come back");
    assert_eq!(cache.fill(0, &post, &token, &value(4)).await, Ok(true));
}

#[tokio::test]
async fn a_full_cache_drops_the_value_that_was_requested_first() {
    let cache = PartitionCache::bounded(3);
    let posts: Vec<_> = (0..5).map(|n| post(&format!("p-{n}"))).collect();
    for (partition, post) in (0..2).cycle().zip(&posts) {
        cache.take_over(partition, &own(), &at(1)).await.unwrap().unwrap();
        fill(&cache, partition, post, value(1)).await;
    }
    let kept = |partition| cache.snapshot(partition).entries.into_keys().collect::<Vec<_>>();
    assert_eq!((kept(0), kept(1)), (vec![posts[2].clone(), posts[4].clone()], vec![posts[3].clone()]));
}
