//! Tests that the API calls no count exact around a loss, that is, while a part of the log `changes` is known to be
//! missing or a table is gone, and calls it exact again after the repair.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tally_count_api::Config;
use tokio::time::sleep;

use super::world::{Beginning, SECOND, World, after, behind_loss, counter, elsewhere, likes, standing};

#[tokio::test(start_paused = true)]
async fn a_standing_read_after_its_counter_is_never_used() {
    let (world, p) = World::counted(Beginning::default()).await;
    world.slow_down(SECOND * 3 / 2);
    // The API knows the later standing when the counter arrives.
    let (later, detailed) = (standing(9, 2 * SECOND), async { world.reader.detailed(&p).await.unwrap().answer });
    let (answer, detailed, ()) = tokio::join!(world.count(&p), detailed, world.stood(&p, &later));
    assert_eq!((answer.served.likes, answer.served.exact, answer.served.as_of), (3, true, after(SECOND)));
    assert_eq!(detailed, answer);
    assert_eq!(world.count(&p).await.served.as_of, after(2 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn an_open_loss_makes_every_count_of_its_partition_inexact() {
    let config = Config { local_ttl: SECOND, ..Config::default() };
    let world = World::with(Beginning { config, cached: true, ..Beginning::default() }).await;
    let (p, other) = (likes("p"), elsewhere(&likes("p")));
    for id in [&p, &other] {
        world.write(id, counter(3, 5)).await;
        world.stood(id, &standing(6, SECOND)).await;
        world.take_over(id, &standing(6, SECOND)).await;
        assert!(world.count(id).await.served.exact, "{id:?}");
    }
    let kept = world.reader.read(std::slice::from_ref(&p)).await.remove(0).unwrap();
    world.stood(&p, &behind_loss(standing(9, 2 * SECOND), 8, true)).await;
    assert!(!world.standings.answer(&p, &kept).served.exact, "a number that a listener has");
    for span in [Duration::ZERO, SECOND / 2, SECOND, 2 * SECOND] {
        sleep(span).await;
        assert!(!world.count(&p).await.served.exact, "from memory, from the cache or from the table");
        assert!(world.count(&other).await.served.exact, "nothing is lost there");
    }
    assert!(!world.standings.is_lossless(&p) && world.standings.is_lossless(&other));
    world.stood(&p, &behind_loss(standing(19, 4 * SECOND), 8, false)).await;
    sleep(SECOND).await;
    let answer = world.count(&p).await;
    assert_eq!((answer.served.exact, answer.served.as_of), (true, after(4 * SECOND)), "the table knows better");
}

#[tokio::test(start_paused = true)]
async fn a_number_of_before_an_announcement_is_read_again_once_the_loss_is_repaired() {
    let (world, p) = World::counted(Beginning { cached: true, ..Beginning::default() }).await;
    let mut hold = world.take_over(&p, &standing(6, SECOND)).await;
    world.count(&p).await;
    sleep(SECOND / 10).await;
    assert!(world.count(&p).await.served.exact);
    // Announced and repaired between two reads of the standing; the cache has not been told yet.
    world.stood(&p, &behind_loss(standing(19, 2 * SECOND), 8, false)).await;
    let answer = world.count(&p).await;
    assert_eq!((answer.served.exact, answer.served.as_of), (true, after(2 * SECOND)));
    world.tell(&mut hold, &p, &counter(3, 5), Some(&behind_loss(standing(20, 3 * SECOND), 8, false))).await;
    sleep(SECOND).await;
    assert_eq!(world.count(&p).await.served.as_of, after(3 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_exact_while_a_table_is_gone_or_another_one_wherever_the_number_is_from() {
    let config = Config { local_ttl: SECOND, ..Config::default() };
    let (world, p) = World::counted(Beginning { config, cached: true, ..Beginning::default() }).await;
    let absent = likes("absent");
    for id in [&p, &absent] {
        world.stood(id, &standing(6, SECOND)).await;
        world.take_over(id, &standing(6, SECOND)).await;
        assert!(world.count(id).await.served.exact);
    }
    let exact = async || {
        let both = [p.clone(), absent.clone()];
        let read = world.reader.counts(&both).await.0.into_iter().map(|answer| answer.unwrap().served.exact);
        let whole = [world.reader.detailed(&p).await.unwrap().answer.served.exact, world.standings.is_lossless(&p)];
        read.chain(whole).collect::<Vec<_>>()
    };
    assert_eq!(exact().await, [true; 4]);
    world.whole.store(false, Ordering::SeqCst);
    assert_eq!(exact().await, [false; 4], "from memory");
    assert!(!world.reader.rendered(&p).await.unwrap().0.answer.served.exact);
    sleep(2 * SECOND).await;
    assert_eq!(exact().await, [false; 4], "from the cache and the table");
    world.whole.store(true, Ordering::SeqCst);
    assert_eq!(exact().await, [true; 4]);
}
