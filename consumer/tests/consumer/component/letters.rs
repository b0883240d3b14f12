//! Records that are no events, and the topic they are put aside on.

use std::time::Duration;

use tally_core::event::Action::Like;
use tally_core::fault::Fault;
use tally_core::fence::{Commit, Fence, Partition};
use tally_core::ports::{FencedRows, TopicReader};

use super::common::{self, Answer, World, eventually, stop};

#[tokio::test(start_paused = true)]
async fn nothing_passes_a_record_whose_dead_letter_is_refused() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    world.put(0, b"k", None);
    world.say(0, "b", Like);
    world.broker.refuse_writes(common::DLQ, Some(Fault::Fatal("not authorised".to_owned())));
    let consumer = world.consumer();
    let readiness = consumer.host().readiness().clone();
    eventually("it shows", async || readiness.report().conditions.contains_key("dead-letters-0")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.fence(0).await, world.letters().await.len()), (Some(0), 0));
    let alive = tokio::time::timeout(Duration::ZERO, consumer.ended()).await;
    assert!(alive.is_err(), "{alive:?}");
    world.broker.refuse_writes(common::DLQ, None);
    world.reaches(0, 3).await;
    assert_eq!(world.letters().await, [(0, 1, "empty_value".to_owned())]);
    assert_eq!(world.rows().await, *world.expected());
    eventually("ready again", async || readiness.report().ready).await;
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_dead_letters_is_forgotten_with_the_partition() {
    let mut world = World::new(1);
    world.put(0, b"k", None);
    world.broker.refuse_writes(common::DLQ, Some(Fault::Fatal("not authorised".to_owned())));
    let consumer = world.consumer();
    let readiness = consumer.host().readiness().clone();
    eventually("it shows", async || readiness.report().conditions.contains_key("dead-letters-0")).await;
    // The next owner of the partition is not refused even once.
    world.broker.refuse_writes(common::DLQ, None);
    world.broker.expire(common::GROUP);
    world.reaches(0, 1).await;
    eventually("ready again", async || readiness.report().ready).await;
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_dead_letters_is_forgotten_by_whichever_letter_is_taken_first() {
    let mut world = World::new(1);
    world.settings.limits.age = Duration::from_secs(60);
    world.put(0, b"k", None);
    world.broker.refuse_writes(common::DLQ, Some(Fault::Fatal("not authorised".to_owned())));
    let consumer = world.consumer();
    let readiness = consumer.host().readiness().clone();
    eventually("it shows", async || readiness.report().conditions.contains_key("dead-letters-0")).await;
    world.broker.refuse_writes(common::DLQ, None);
    world.put(0, b"k", None);
    eventually("ready again", async || readiness.report().ready).await;
    assert_eq!(world.fence(0).await, Some(0), "the batch is not even due");
    world.reaches(0, 2).await;
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_dead_letter_is_not_written_again_however_often_the_fence_is_read() {
    let mut world = World::new(1);
    world.put(0, b"k", None);
    world.say(0, "refused", Like);
    world.forget(0, "refused");
    world.say(0, "a", Like);
    let mut asked = 0;
    world.table.script(move |request| {
        if request.users.iter().any(|user| user == "refused") {
            return Answer::Say(Commit::Invalid("not welcome".to_owned()));
        }
        asked += 1;
        match asked {
            1..=5 => Answer::Say(Commit::Unknown("no answer".to_owned())),
            6..=8 => Answer::Say(Commit::Fatal("access denied".to_owned())),
            _ => Answer::Truth,
        }
    });
    let consumer = world.consumer();
    world.reaches(0, 3).await;
    let letters = world.letters().await;
    assert_eq!(letters, [(0, 0, "empty_value".to_owned()), (0, 1, "refused_by_store".to_owned())]);
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_reset_to_another_topic_has_its_own_dead_letters() {
    let mut world = World::new(1);
    world.put(0, b"k", None);
    world.table.answers([Answer::Say(Commit::Fatal("access denied".to_owned()))]);
    let consumer = world.consumer();
    eventually("the letter is there", async || world.letters().await.len() == 1).await;
    world.broker.create_topic(common::TOPIC, 1);
    world.put(0, b"k", Some(b"{"));
    let partition = Partition { topic: common::TOPIC.into(), index: 0 };
    let seen = world.table.fence(&partition).await.unwrap().unwrap();
    let log = world.broker.reader("test", common::TOPIC).logs().await.unwrap().remove(0).1;
    let to = Fence { topic: log.topic, ..seen.clone() };
    assert!(world.table.replace_fences(&partition, &seen.clone().into(), &to.clone().into()).await.unwrap());
    world.reaches(0, 1).await;
    let letters = world.letters().await;
    assert_eq!(letters, [(0, 0, "empty_value".to_owned()), (0, 0, "not_json".to_owned())]);
    stop(consumer).await;
}
