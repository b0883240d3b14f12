//! Tests `as_of`, the time up to which a count has all changes, and which reads renew a count that is getting old.

use std::time::Duration;

use futures_util::future::join_all;
use tally_count_api::Config;
use tokio::time::{Instant, sleep};

use super::world::{Beginning, SECOND, World, after, counter, likes, standing};

#[tokio::test(start_paused = true)]
async fn as_of_is_never_later_than_the_apis_own_time() {
    let slow = after(Duration::ZERO).minus(60 * SECOND);
    let world = World::with(Beginning { clock: slow, ..Beginning::default() }).await;
    let p = likes("p");
    world.write(&p, counter(3, 5)).await;
    world.stood(&p, &standing(6, Duration::ZERO)).await;
    let answer = world.count(&p).await;
    assert_eq!((answer.served.as_of, answer.served.exact), (world.standings.now().wall, true));
    sleep(61 * SECOND).await;
    assert_eq!(world.count(&p).await.served.as_of, after(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_counter_is_renewed_by_one_reader() {
    let config = Config { local_ttl: SECOND, fresh_within: SECOND, ..Config::default() };
    let world = World::with(Beginning { config, ..Beginning::default() }).await;
    let p = likes("p");
    world.write(&p, counter(3, 5)).await;
    let until = async |moment| sleep(after(moment).since(world.now())).await;
    // Standings are read twice a second.
    let (first, later) = (SECOND * 3 / 2, SECOND * 7 / 4);
    until(SECOND * 5 / 4).await;
    world.stood(&p, &standing(6, first)).await;
    let asked = async || {
        let began = Instant::now();
        (world.count(&p).await.served.as_of, began.elapsed() >= SECOND / 10)
    };
    assert_eq!(asked().await, (after(first), false));
    world.stand(&p, &standing(7, later)).await;
    until(SECOND * 21 / 10).await;
    world.slow_down(SECOND / 10);
    let mut answers = join_all((0..10).map(|_| asked())).await;
    assert_eq!(answers.remove(0), (after(later), true));
    assert_eq!(answers, [(after(first), false); 9], "the others get what is there");
    assert_eq!((asked().await, world.slow_reads()), ((after(later), false), 1));
}

#[tokio::test(start_paused = true)]
async fn a_number_that_no_read_can_renew_is_not_read_again_for_that() {
    let config = Config { local_ttl: SECOND, fresh_within: SECOND, ..Config::default() };
    let world = World::with(Beginning { config, ..Beginning::default() }).await;
    let p = likes("p");
    world.write(&p, counter(3, 5)).await;
    // The relays are away: the log grows without saying up to when it has all changes.
    world.stood(&p, &standing(7, SECOND)).await;
    sleep(60 * SECOND).await;
    world.slow_down(Duration::ZERO);
    world.count(&p).await;
    world.stand(&p, &standing(8, SECOND)).await;
    sleep(SECOND * 9 / 10).await;
    for _ in 0..100 {
        assert!(!world.count(&p).await.fresh);
    }
    assert_eq!(world.slow_reads(), 1);
}
