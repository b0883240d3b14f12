//! Tests how the API reads the table of counters under load: many requests for one counter are one read, clients may
//! leave, and the process is not ready if it cannot read the standings, which say up to when counts are complete.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tally_core::ids::CounterId;
use tally_count_api::Config;
use tally_emulator::{Fault, Rule};
use tally_service::Condition;
use tokio::time::sleep;

use super::world::{Beginning, SECOND, World, after, counter, likes, standing};

fn is_ready(world: &World, condition: &str) -> Option<bool> {
    world.host.readiness().report().conditions.get(condition).map(|stated| *stated == Condition::Ready)
}

/// Starts with a post with seven likes, and makes reads of the table take half a second.
async fn hot(local_ttl: Duration, cached: bool) -> (World, CounterId) {
    let config = Config { table_budget: 20 * SECOND, local_ttl, cache_budget: SECOND / 20, ..Config::default() };
    let beginning = Beginning { config, cached, ..Beginning::default() };
    let (world, hot) = (Box::pin(World::with(beginning)).await, likes("hot"));
    world.write(&hot, counter(7, 5)).await;
    world.stood(&hot, &standing(6, SECOND)).await;
    if cached {
        world.take_over(&hot, &standing(6, SECOND)).await;
    }
    world.slow_down(SECOND / 2);
    (world, hot)
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_misses_of_one_post_are_one_read_of_the_table() {
    for (ttl, cached) in [(SECOND, true), (SECOND, false), (Duration::ZERO, true), (Duration::ZERO, false)] {
        let (world, hot) = hot(ttl, cached).await;
        // join_all sends all requests before the read may start.
        for answer in join_all((0..10_000).map(|_| world.count(&hot))).await {
            let served = answer.served;
            assert_eq!((served.likes, served.exact, served.as_of, answer.fresh), (7, true, after(SECOND), true));
        }
        assert_eq!(world.slow_reads(), 1, "ttl {ttl:?}, cached {cached}");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_neither_end_a_read_nor_begin_it_again_and_what_it_read_is_kept() {
    let (world, hot) = hot(SECOND, false).await;
    for _ in 0..1_000 {
        assert!(world.reader.count(&hot).now_or_never().is_none(), "who asked has left");
    }
    sleep(SECOND * 3 / 4).await;
    assert!(world.reader.count(&hot).now_or_never().is_some_and(|answer| answer.is_ok()), "it is in memory");
    assert_eq!(world.slow_reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn standings_that_cannot_be_read_make_the_process_not_ready_and_answers_go_on() {
    let (world, p) = World::counted(Beginning::default()).await;
    world.store.faults([Rule::new(Fault::Outage).on("BatchGetItem").table("checkpoints")]);
    sleep(4 * SECOND).await;
    assert_eq!(is_ready(&world, "table"), Some(true), "one failure says little");
    sleep(8 * SECOND).await;
    assert_eq!(is_ready(&world, "table"), Some(false));
    let answer = world.count(&p).await;
    assert_eq!((answer.served.likes, answer.served.exact, answer.fresh), (3, true, false));
    world.store.faults([]);
    sleep(2 * SECOND).await;
    assert_eq!(is_ready(&world, "table"), Some(true));
}
