//! The table behind its gate, and readiness.

use std::time::Duration;

use futures_util::future::join_all;
use tally_count_api::Config;
use tally_count_api::read::{Bounds, NoAnswer};
use tally_emulator::{Fault, Rule};
use tally_service::Condition;
use tokio::time::sleep;

use super::world::{Beginning, SECOND, World, counter, likes, standing};

fn is_ready(world: &World, condition: &str) -> Option<bool> {
    world.host.readiness().report().conditions.get(condition).map(|stated| *stated == Condition::Ready)
}

#[tokio::test(start_paused = true)]
async fn of_many_requests_one_reads_and_past_the_gate_reads_are_refused() {
    let table = Bounds { concurrency: 1, ..Config::default().table };
    let config = Config { local_ttl: Duration::ZERO, table, ..Config::default() };
    let (world, p) = (World::with(Beginning { config, ..Beginning::default() }).await, likes("p"));
    world.write(&p, counter(3, 5)).await;
    world.stood(&p, &standing(6, SECOND)).await;
    world.slow_down(SECOND / 2);
    let other = likes("other");
    let same = async {
        let answers = join_all((0..50).map(|_| world.reader.count(&p))).await;
        answers.into_iter().filter(|answer| answer.as_ref().is_ok_and(|answer| answer.served.likes == 3)).count()
    };
    let (same, refused) = tokio::join!(same, async {
        sleep(SECOND / 10).await;
        world.reader.count(&other).await
    });
    assert_eq!((same, world.slow_reads(), refused), (50, 1, Err(NoAnswer::Busy)));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_does_not_answer_costs_its_budget_and_a_fault_is_not_kept() {
    let config = Config { local_ttl: SECOND, ..Config::default() };
    let (world, p) = (World::with(Beginning { config, ..Beginning::default() }).await, likes("p"));
    world.write(&p, counter(3, 5)).await;
    world.slow_down(3600 * SECOND);
    assert!(matches!(world.reader.count(&p).await, Err(NoAnswer::Away(_))));
    world.store.faults([]);
    assert_eq!(world.count(&p).await.served.likes, 3);
}

#[tokio::test(start_paused = true)]
async fn standings_that_cannot_be_read_make_the_process_not_ready_and_answers_go_on() {
    let (world, p) = (World::start().await, likes("p"));
    world.write(&p, counter(3, 5)).await;
    world.stood(&p, &standing(6, SECOND)).await;
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

#[tokio::test(start_paused = true)]
async fn a_table_that_is_gone_gives_no_answers_and_one_that_comes_back_empty_none_that_are_exact() {
    let (world, p) = (World::start().await, likes("p"));
    world.stood(&p, &standing(6, SECOND)).await;
    world.store.call("DeleteTable", serde_json::json!({"TableName": "like_counts"})).await;
    for _ in 0..5 {
        assert!(matches!(world.reader.count(&p).await, Err(NoAnswer::Away(_))));
    }
    tally_adapters::dynamodb::ensure_tables(&world.store.connection).await.unwrap();
    assert!(!world.count(&p).await.served.exact, "it is a new table, without the reserved row");
}
