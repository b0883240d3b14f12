//! Tests how soon after a correction the API stops answering the earlier number.

use std::time::Duration;

use tally_core::fold::Counter;
use tally_count_api::Config;
use tokio::time::sleep;

use super::world::{Beginning, SECOND, World, counter, likes, standing};

#[tokio::test(start_paused = true)]
async fn a_second_behind_a_correction_no_request_is_told_the_number_of_before() {
    let config = Config { local_ttl: 10 * SECOND, ..Config::default() };
    let (world, p) = (World::with(Beginning { config, ..Beginning::default() }).await, likes("p"));
    world.write(&p, counter(4, 5)).await;
    world.stood(&p, &standing(6, SECOND)).await;
    assert_eq!(world.count(&p).await.served.likes, 4);
    world.write(&p, Counter { corrections: 1, ..counter(3, 8) }).await;
    sleep(SECOND - Duration::from_millis(1)).await;
    assert_eq!(world.count(&p).await.served.likes, 4);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.count(&p).await.served.likes, 3);
}

#[tokio::test(start_paused = true)]
async fn also_where_a_read_of_before_is_still_under_way() {
    let (world, p) = (World::start().await, likes("p"));
    world.write(&p, counter(4, 5)).await;
    world.stood(&p, &standing(6, SECOND)).await;
    // The read may have seen the table before, but its result is not kept for long.
    world.slow_down(SECOND * 19 / 10);
    let later = async {
        sleep(SECOND / 10).await;
        world.store.faults([]);
        world.write(&p, Counter { corrections: 1, ..counter(3, 8) }).await;
        sleep(SECOND).await;
        world.count(&p).await.served.likes
    };
    let (_, later) = tokio::join!(world.count(&p), later);
    assert_eq!(later, 3);
}
