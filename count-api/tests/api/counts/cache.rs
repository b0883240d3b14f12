//! Tests how the API reads counts from the shared cache, also when it is away, behind the table, or overtaken by the
//! fold while it is filled.

use std::time::Duration;

use tally_core::cached::{Cache as _, Value};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;
use tally_count_api::Config;
use tokio::time::{Instant, sleep};

use super::world::{Beginning, SECOND, World, after, counter, elsewhere, likes, partition, standing};

async fn cached() -> (World, CounterId) {
    World::counted(Beginning { cached: true, ..Beginning::default() }).await
}

/// What the cache has of a counter.
async fn held(world: &World, id: &CounterId) -> Option<Value> {
    world.cache.inner.get(partition(id), std::slice::from_ref(id)).await.unwrap().values.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_number_that_was_read_is_cached_and_read_there_beside_the_caches_own_standing() {
    let (world, p) = cached().await;
    let absent = (0..).map(|n| likes(&format!("absent-{n}"))).find(|id| partition(id) == partition(&p)).unwrap();
    let mut hold = world.take_over(&p, &standing(6, SECOND)).await;
    world.slow_down(Duration::ZERO);
    world.count(&p).await;
    world.count(&absent).await;
    sleep(SECOND / 10).await;
    assert_eq!((held(&world, &p).await, held(&world, &absent).await), (Some(Value::from(&counter(3, 5))), None));
    // The cache is ahead of the standing that is stored in the table.
    sleep(SECOND).await;
    world.tell(&mut hold, &p, &counter(4, 8), Some(&standing(9, 2 * SECOND))).await;
    let answer = world.count(&p).await.served;
    assert_eq!((answer.likes, answer.exact, answer.as_of), (4, true, after(2 * SECOND)));
    assert_eq!(world.slow_reads(), 2, "it was read in the table once");
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_is_read_in_the_table_is_judged_by_the_later_of_both_standings() {
    let (world, p) = cached().await;
    world.take_over(&p, &standing(8, 2 * SECOND)).await;
    sleep(2 * SECOND).await;
    assert_eq!(world.count(&p).await.served.as_of, after(2 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn another_deployments_standing_and_values_count_as_absent() {
    let (world, p) = cached().await;
    let (cache, index, other) = (&world.cache.inner, partition(&p), DeploymentId("other".into()));
    cache.take_over(index, &other, &standing(9, 2 * SECOND)).await.unwrap().unwrap();
    let token = cache.begin_fill(index, &p).await.unwrap().unwrap();
    assert_eq!(cache.fill(index, &p, &token, &Value::from(&counter(99, 8))).await, Ok(true));
    sleep(2 * SECOND).await;
    let answer = world.count(&p).await.served;
    assert_eq!((answer.likes, answer.exact, answer.as_of), (3, true, after(SECOND)));
    sleep(SECOND / 10).await;
    assert_eq!(held(&world, &p).await, Some(Value::from(&counter(99, 8))), "nothing is filled beside it");
    world.take_over(&p, &standing(6, SECOND)).await;
    assert_eq!(held(&world, &p).await, None, "the fold takes the cache over, though it is not as far");
}

#[tokio::test(start_paused = true)]
async fn a_fill_that_the_fold_has_overtaken_is_refused() {
    let (world, p) = cached().await;
    let mut hold = world.take_over(&p, &standing(6, SECOND)).await;
    world.slow_down(SECOND / 10);
    let overtake = async {
        sleep(SECOND / 20).await;
        world.tell(&mut hold, &p, &counter(4, 8), Some(&standing(9, SECOND))).await;
    };
    let (answer, ()) = tokio::join!(world.count(&p), overtake);
    assert_eq!((answer.served.likes, answer.served.exact), (3, true), "as of its standing");
    sleep(SECOND / 10).await;
    assert_eq!(held(&world, &p).await, Some(Value::from(&counter(4, 8))));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_away_costs_its_budget_for_a_quarter_of_a_second_and_then_nothing() {
    let (world, p) = cached().await;
    let delay = |by| *world.cache.delay.lock() = by;
    delay(3600 * SECOND);
    let (began, before) = (Instant::now(), world.cache.gets());
    for _ in 0..100 {
        let answer = world.count(&p).await.served;
        assert_eq!((answer.likes, answer.exact, answer.as_of), (3, true, after(SECOND)));
    }
    let budget = Config::default().cache_budget;
    assert_eq!((world.cache.gets() - before, began.elapsed()), (10, budget * 10));
    // The next trial is answered, but later than a request would wait: a process with too many reads is that slow.
    delay(SECOND / 20);
    sleep(SECOND).await;
    let waited = async || {
        let began = Instant::now();
        world.count(&p).await;
        began.elapsed()
    };
    assert_eq!(waited().await, Duration::ZERO, "no request waits for a trial");
    sleep(SECOND / 10).await;
    delay(budget / 4);
    assert!(waited().await > Duration::ZERO, "the cache is asked again");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_posts_that_is_cached_is_asked_for_in_all_partitions_at_once_and_no_counter_is_read() {
    let (world, p) = cached().await;
    let page = [elsewhere(&p), p];
    world.write(&page[0], counter(3, 5)).await;
    for id in &page {
        world.stood(id, &standing(6, SECOND)).await;
        world.take_over(id, &standing(6, SECOND)).await;
        world.count(id).await;
    }
    sleep(SECOND / 10).await;
    world.slow_down(Duration::ZERO);
    let (delay, gets) = (Config::default().cache_budget / 3, world.cache.gets());
    *world.cache.delay.lock() = delay;
    let began = Instant::now();
    let (read, _) = world.reader.counts(&page).await;
    assert!(read.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.served.likes == 3)));
    assert_eq!((began.elapsed(), world.cache.gets() - gets, world.slow_reads()), (delay, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_is_passed_over_once_its_standing_is_older_than_half_of_what_is_fresh() {
    let (world, p) = cached().await;
    world.take_over(&p, &standing(6, SECOND)).await;
    world.count(&p).await;
    sleep(SECOND / 10).await;
    // The fold goes on and does not reach the cache.
    world.write(&p, counter(4, 8)).await;
    world.stood(&p, &standing(9, 5 * SECOND)).await;
    let told = async || {
        let answer = world.count(&p).await;
        (answer.served.likes, answer.served.as_of, answer.served.exact, answer.fresh)
    };
    assert_eq!(told().await, (3, after(SECOND), true, true));
    sleep(after(6 * SECOND).since(world.now())).await;
    assert_eq!(told().await, (3, after(SECOND), true, true));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(told().await, (4, after(5 * SECOND), true, true));
    // An old number with its `as_of` is better than none.
    world.reads_of_counters(tally_emulator::Fault::Outage);
    sleep(after(12 * SECOND).since(world.now())).await;
    assert_eq!(told().await, (3, after(SECOND), true, false));
    assert!(world.reader.count(&likes("another")).await.is_err());
    let (other, absent) = (elsewhere(&p), likes("absent"));
    assert!(world.reader.counts(&[other, absent]).await.0.iter().all(Result::is_err));
}
