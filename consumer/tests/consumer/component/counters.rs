//! Counters beside likes: defined while the consumer runs, and sums that no lost answer counts twice.

use std::collections::BTreeMap;

use tally_core::definitions::{Definitions, Entry};
use tally_core::event::Action::Like;
use tally_core::fence::{Commit, Fence, Offset, Partition, Terms};
use tally_core::ids::MemberKey;
use tally_core::ports::{DeploymentConfig as _, FencedRows as _, Rows as _, Segment};

use super::common::{Answer, TOPIC, World, eventually, stop};

const VIEWS: [i64; 4] = [1, 20, 300, 4_000];

fn entry(name: &str, kind: &str, add: &str) -> Entry {
    Entry { name: name.into(), kind: kind.into(), add: add.into(), ..Entry::default() }
}

async fn define(world: &World) {
    let deployment = world.memory.checkpoints();
    deployment.config(None).await.unwrap();
    let wanted = [
        Entry { remove: Some("unretweet".into()), ..entry("retweets", "set", "retweet") },
        entry("views", "sum", "view"),
    ];
    let seen = deployment.definitions().await.unwrap();
    assert!(deployment.define(&seen, &Definitions::new(&wanted).unwrap()).await.unwrap());
}

fn view(world: &mut World, partition: u32, n: i64) {
    let value = format!(r#"{{"post_id":"p-{partition}","action":"view","n":{n}}}"#);
    world.put(partition, b"p", Some(value.as_bytes()));
}

fn retweet(world: &mut World, partition: u32, action: &str) {
    let value = format!(r#"{{"post_id":"p-{partition}","user_id":"u","action":"{action}"}}"#);
    world.put(partition, b"p", Some(value.as_bytes()));
}

/// The weight of every row under its partition key, likes left out.
async fn counted(world: &World) -> BTreeMap<String, i64> {
    let rows = world.memory.rows().scan(Segment { index: 0, of: 1 }, None).await.unwrap().items;
    let mut sums = BTreeMap::new();
    for row in rows.iter().filter(|row| row.pk.contains('.')) {
        assert!(MemberKey::new(&row.sort).is_some());
        *sums.entry(row.pk.clone()).or_default() += row.weight().unwrap().get();
    }
    sums
}

async fn fence(world: &World, index: u32) -> Fence {
    let partition = Partition { topic: TOPIC.into(), index };
    world.memory.likes(tally_core::ids::ShardCount::DEFAULT).fence(&partition).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_is_defined_while_the_consumer_runs_loses_no_event() {
    let mut world = World::new(2);
    world.say(0, "a", Like);
    let running = world.consumer();
    world.reaches(0, 1).await;
    assert_eq!(fence(&world, 0).await.terms, Terms::default(), "likes alone are not stated");
    define(&world).await;
    for n in VIEWS {
        view(&mut world, 0, n);
    }
    view(&mut world, 1, 7);
    retweet(&mut world, 1, "retweet");
    world.say(0, "b", Like);
    world.reaches(0, 6).await;
    world.reaches(1, 2).await;
    assert_eq!(fence(&world, 0).await.terms, Terms { defs: 3, ..Terms::default() });
    let sums = counted(&world).await;
    assert_eq!((sums["p-0#+views.0"], sums["p-1#+views.1"]), (4_321, 7));
    assert_eq!(sums.values().sum::<i64>(), 4_321 + 7 + 1, "and one retweet: {sums:?}");
    retweet(&mut world, 1, "unretweet");
    world.put(1, b"p", Some(br#"{"post_id":"p-1","action":"love"}"#));
    world.reaches(1, 4).await;
    assert_eq!(counted(&world).await.values().sum::<i64>(), 4_321 + 7);
    let letters = world.letters().await;
    assert_eq!(letters.len(), 1, "what nothing defines is put aside: {letters:?}");
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_adds_nothing_twice() {
    let mut world = World::new(1);
    define(&world).await;
    let lost = || Answer::DoAndSay(Commit::Unknown("no answer".to_owned()));
    world.table.answers([lost(), lost(), Answer::Say(Commit::Unknown("never sent".to_owned())), lost()]);
    let running = world.consumer();
    for (offset, n) in (1..).zip(VIEWS) {
        view(&mut world, 0, n);
        world.reaches(0, offset).await;
    }
    assert_eq!(counted(&world).await["p-0#+views.0"], VIEWS.iter().sum::<i64>());
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_was_moved_back_counts_no_view_again_and_by_hand_it_is_an_alarm() {
    let mut world = World::new(1);
    define(&world).await;
    for n in VIEWS {
        view(&mut world, 0, n);
    }
    let running = world.consumer();
    world.reaches(0, 4).await;
    stop(running).await;
    let (seen, rows) = (fence(&world, 0).await, world.memory.likes(tally_core::ids::ShardCount::DEFAULT));
    let partition = Partition { topic: TOPIC.into(), index: 0 };
    let back = Fence { offset: Offset(1), terms: Terms { redo: Some(Offset(4)), ..seen.terms }, ..seen.clone() };
    assert!(rows.replace_fences(&partition, &seen.clone().into(), &back.clone().into()).await.unwrap());
    view(&mut world, 0, 50_000);
    let running = world.consumer();
    world.reaches(0, 5).await;
    assert_eq!(counted(&world).await["p-0#+views.0"], 54_321);
    stop(running).await;

    let seen = fence(&world, 0).await;
    let by_hand = Fence { offset: Offset(2), terms: Terms { redo: None, ..seen.terms }, ..seen.clone() };
    assert!(rows.replace_fences(&partition, &seen.clone().into(), &by_hand.clone().into()).await.unwrap());
    let running = world.consumer();
    let readiness = running.host().readiness().clone();
    eventually("the alarm shows", async || {
        let report = readiness.report();
        report.conditions.get("partition-0").is_some_and(|condition| format!("{condition:?}").contains("moved back"))
    })
    .await;
    assert_eq!(counted(&world).await["p-0#+views.0"], 54_321, "no count has changed");
    stop(running).await;
}
