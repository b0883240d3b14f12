//! Tests what the API claims of counts that may be missing or wrong: counters that do not exist, counters in doubt, and
//! counters whose partition of the log `changes` was replaced or is not set up.

use std::sync::Arc;

use serde_json::json;
use tally_adapters::dynamodb::changes::Changes;
use tally_core::audit::QueueReason;
use tally_core::changes::partition_of;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, CounterName, RowKey, Shard, ShardCount};
use tally_core::topic::TopicId;
use tally_count_api::definitions::FollowDefinitions;
use tally_count_api::read::Reader;
use tally_count_api::{Config, Ports};
use tally_service::{Clock, Host};
use tally_testkit::{BEGAN, Store};
use tokio::time::{sleep, timeout};

use super::world::{
    Beginning, PARTITIONS, SECOND, World, after, counter, key, likes, log, of_generation, partition, standing,
};

#[tokio::test(start_paused = true)]
async fn an_absent_counter_is_exact_zero_only_beside_the_reserved_row() {
    let ((world, p), absent) = (World::counted(Beginning::default()).await, likes("absent"));
    world.stood(&absent, &standing(6, SECOND)).await;
    let answer = world.count(&absent).await.served;
    assert_eq!((answer.likes, answer.version, answer.exact, answer.as_of), (0, 0, true, after(SECOND)));
    assert_eq!(world.reader.detailed(&absent).await.unwrap().answer.served, answer);
    world.delete_reserved().await;
    assert!(!world.count(&absent).await.served.exact, "the table may be a new one");
    let detailed = world.reader.detailed(&absent).await.unwrap();
    assert_eq!((detailed.answer.served.exact, detailed.counter), (false, None));
    let both = world.reader.counts(&[p, absent]).await.0.into_iter().map(|answer| answer.unwrap().served.exact);
    assert_eq!(both.collect::<Vec<_>>(), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn in_a_table_that_was_adopted_what_is_absent_is_exact_only_beside_a_standing_that_knows_of_the_loss() {
    let (world, absent) = (World::with(Beginning::default()).await, likes("absent"));
    world.stood(&absent, &standing(6, SECOND)).await;
    assert!(world.count(&absent).await.served.exact);
    // The table is lost, and another one is adopted. The API has not noticed, and the fold is dead.
    world.delete_reserved().await;
    world.counters.put_reserved_since(after(20 * SECOND)).await.unwrap();
    let exact = async || {
        let alone = world.count(&absent).await.served.exact;
        (alone, world.reader.detailed(&absent).await.unwrap().answer.served.exact)
    };
    assert_eq!(exact().await, (false, false));
    sleep(30 * SECOND).await;
    world.stood(&absent, &standing(7, 20 * SECOND)).await;
    assert_eq!(exact().await, (false, false));
    world.stood(&absent, &standing(8, 21 * SECOND)).await;
    assert_eq!(exact().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn a_set_below_zero_or_in_doubt_is_not_exact_and_is_queued_for_a_recount_and_a_sum_may_be_below_zero() {
    let (world, p, q) = (World::with(Beginning::default()).await, likes("p"), likes("q"));
    let score = CounterId { name: CounterName::new("score", CounterKind::Sum).unwrap(), ..p.clone() };
    let second = Shard::new(2).unwrap();
    let doubted = Counter { doubt: [second].into(), ..counter(3, 5) };
    let below = counter(-3, 5);
    for (id, planted, shown, exact) in
        [(&p, below.clone(), 0, false), (&score, below, -3, true), (&q, doubted, 3, false)]
    {
        world.write(id, planted).await;
        world.stood(id, &standing(6, SECOND)).await;
        let served = world.count(id).await.served;
        assert_eq!((served.value(id.name.kind()), served.exact), (shown, exact), "{id:?}");
    }
    sleep(SECOND).await;
    let of_doubt = RowKey { counter: q, shard: second };
    assert_eq!(world.queued().await, [(key(&p), QueueReason::Negative), (of_doubt, QueueReason::Doubt)]);
}

#[tokio::test(start_paused = true)]
async fn a_total_that_is_not_the_sum_of_its_parts_is_not_exact_and_every_shard_is_queued_for_a_recount() {
    let (world, p) = World::counted(Beginning::default()).await;
    assert!(world.count(&p).await.served.exact);
    sleep(SECOND).await;
    assert_eq!(world.queued().await, []);
    world.store.edit("like_counts", json!({"post_id": {"S": "p"}}), "likes", json!({"N": "9"})).await;
    assert!(!world.count(&p).await.served.exact);
    sleep(SECOND).await;
    // A correction of one would make the total the sum of all, whatever else was edited.
    assert_eq!(world.queued().await.len(), usize::from(ShardCount::DEFAULT.get()));
}

#[tokio::test(start_paused = true)]
async fn a_standing_of_another_generation_is_passed_over_as_its_partitions_may_be_others() {
    let world = World::with(Beginning { cached: true, ..Beginning::default() }).await;
    let moves = |id: &CounterId| partition_of(&key(id), PARTITIONS + 3) != partition(id);
    let p = (0..).map(|n| likes(&format!("p-{n}"))).find(moves).unwrap();
    world.write(&p, counter(3, 5)).await;
    world.stood(&p, &standing(6, SECOND)).await;
    assert!(world.count(&p).await.served.exact);
    // Another topic has replaced the log, and the API has not noticed.
    world.changes.adopt_topic(&log(1), &TopicId("u".into()), PARTITIONS + 3).await.unwrap().unwrap();
    let later = of_generation(2, standing(1, 9 * SECOND));
    world.take_over(&p, &later).await;
    let answer = world.count(&p).await.served;
    assert_eq!((answer.exact, answer.as_of), (true, after(SECOND)), "the cache has another partition's standing");
    world.stand(&p, &later).await;
    sleep(10 * SECOND).await;
    assert_eq!(world.standings.known().partition(&p), Some(partition_of(&key(&p), PARTITIONS + 3)));
    assert!(!world.count(&p).await.served.exact, "nothing is stored of its partition");
}

#[tokio::test(start_paused = true)]
async fn a_partition_whose_log_lost_its_end_is_exact_in_the_generation_in_which_its_fold_went_on() {
    let (world, p) = World::counted(Beginning::default()).await;
    world.stand(&p, &of_generation(2, standing(7, 9 * SECOND))).await;
    sleep(10 * SECOND).await;
    let answer = world.count(&p).await.served;
    assert_eq!((answer.exact, answer.as_of), (true, after(9 * SECOND)));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_not_set_up_yet_is_waited_for_by_name() {
    let (store, host) = (Store::start().await, Host::new("count-api").with_clock(Clock::starting_at(BEGAN)));
    let (config, ports) = (Config::default(), Ports::over(&store.connection));
    let definitions = FollowDefinitions::begin(&ports.tables, "likes", &host).await.unwrap();
    let mut opening = Box::pin(Reader::open(
        &config,
        &ports.tables,
        ports.cache,
        ShardCount::DEFAULT,
        definitions,
        Arc::new(|| true),
        &host,
    ));
    assert!(timeout(60 * SECOND, &mut opening).await.is_err());
    let stated = host.readiness().report().conditions;
    assert!(format!("{stated:?}").contains("the log of changes is not set up yet"), "{stated:?}");
    Changes::new(&ports.tables).begin_log(&log(1)).await.unwrap();
    assert!(timeout(60 * SECOND, opening).await.is_ok_and(|opened| opened.is_ok()));
}
