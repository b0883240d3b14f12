//! Erasures: what they produce.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use tally_adapters::dynamodb::Checkpoints;
use tally_batch_recount::{EraseConfig, ErasePorts, Erased, Subject, Tombstones, erase};
use tally_core::definitions::Definitions;
use tally_core::event::{Deed, decode_value};
use tally_core::ids::UserId;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Outgoing, Producer, Written};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_service::{Chance, Patience, Switch};
use tally_testkit::BEGAN;

use crate::jobs::{defined, set};
use crate::world::{GONE, World, post, shards, user};

/// A record's key and value.
type Record = (String, Vec<u8>);

/// A producer that keeps what it is given.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Record>>>);

#[async_trait]
impl Producer for Kept {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
        self.0.lock().unwrap().push((key, record.value.unwrap().to_vec()));
        Ok(Written { partition: 0, offset: Offset(0) })
    }
}

/// Erases, and sends events to `producer` if there is one.
async fn carried_out(
    world: &World,
    producer: Option<Arc<dyn Producer>>,
    subject: Subject,
    counters: &[&str],
) -> anyhow::Result<Erased> {
    let ports = ErasePorts { tables: world.store.connection.clone(), producer };
    let config = EraseConfig {
        subject,
        counters: counters.iter().map(|name| (*name).to_owned()).collect(),
        topic: "likes".to_owned(),
        read_units: None,
    };
    let patience = Patience::new(world.clock, Chance::seeded(1));
    erase(ports, shards(), &config, patience, Switch::new().stop(), |_| {}).await
}

/// Erases; what was produced, in order.
async fn erased(world: &World, subject: Subject, counters: &[&str]) -> (anyhow::Result<Erased>, Vec<Record>) {
    let kept = Kept::default();
    let erased = carried_out(world, Some(Arc::new(kept.clone())), subject, counters).await;
    let mut records = std::mem::take(&mut *kept.0.lock().unwrap());
    records.sort();
    (erased, records)
}

fn of_user(n: u64) -> Subject {
    of_users(&[n])
}

fn of_users(users: &[u64]) -> Subject {
    Subject::Users(users.iter().map(|n| user(*n)).collect())
}

fn of_post(n: u64) -> Subject {
    Subject::Post(post(n).post)
}

#[tokio::test(start_paused = true)]
async fn an_erasure_produces_an_unlike_for_every_like_and_a_dry_run_none() {
    let world = World::start().await;
    world.fill(5, 30).await;
    let (done, records) = erased(&world, of_user(7), &[]).await;
    let users = [user(7)].into();
    assert_eq!(done.unwrap(), Erased { read: 150, users, found: 5, produced: 5, ..Erased::default() });
    let keys: Vec<_> = records.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, (0..5).map(|n| post(n).post.to_string()).collect::<Vec<_>>());
    let (_, unlikes) = erased(&world, of_post(2), &[]).await;
    assert_eq!(unlikes.len(), 30);
    for (key, value) in &unlikes {
        let event = decode_value(Some(value), BEGAN, &Definitions::likes_alone()).unwrap();
        assert_eq!(key, "p-2");
        assert!(matches!(event.deed, Deed::Member { present: false, .. }), "{event:?}");
    }
    let dry = carried_out(&world, None, of_post(2), &[]).await;
    assert_eq!(dry.unwrap(), Erased { read: 30, found: 30, ..Erased::default() });
}

#[tokio::test(start_paused = true)]
async fn an_erasure_takes_nobody_out_twice_and_says_which_tombstones_stay_and_until_when() {
    let world = World::start().await;
    world.fill(2, 3).await;
    world.put(&post(0), &user(1), false).await;
    world.put(&post(0), &user(2), false).await;
    let tombstones = |rows| Tombstones { rows, until: Some(GONE) };
    for (subject, read, rows) in [(of_user(1), 6, 1), (of_post(0), 3, 2)] {
        let (done, records) = erased(&world, subject, &[]).await;
        let done = done.unwrap();
        assert_eq!((done.read, done.found, done.produced, records.len()), (read, 1, 1, 1));
        assert_eq!(done.tombstones, tombstones(rows));
    }
    let (done, _) = erased(&world, of_post(1), &[]).await;
    assert_eq!(done.unwrap().tombstones, Tombstones::default());
    let now = UnixMillis((GONE - 3_601) * 1_000);
    let said = "2 tombstones of members that were taken out before stay for 2 h at most";
    assert_eq!(tombstones(2).stay(now).as_deref(), Some(said));
    assert_eq!(Tombstones::default().stay(now), None);
}

#[tokio::test(start_paused = true)]
async fn many_users_are_erased_in_one_pass_over_the_table() {
    let world = World::start().await;
    world.fill(4, 30).await;
    let (alone, _) = erased(&world, of_user(3), &[]).await;
    let (done, records) = erased(&world, of_users(&[3, 7, 11, 999]), &[]).await;
    let done = done.unwrap();
    assert_eq!((done.read, alone.unwrap().read), (120, 120), "the table is read once");
    assert_eq!((done.found, done.produced, records.len()), (12, 12, 12));
    assert_eq!(done.users, [3, 7, 11].map(user).into());
}

#[tokio::test(start_paused = true)]
async fn an_erasure_sends_each_set_its_own_remove_action_and_says_which_sets_have_none() {
    let world = World::start().await;
    let checkpoints = Checkpoints::new(&world.store.connection);
    assert_eq!(checkpoints.define(&Definitions::likes_alone(), &defined()).await, Ok(true));
    for (counter, members) in [
        ("likes", &["u-1", "u-2"][..]),
        ("retweets", &["u-1"]),
        ("replies", &["u-1"]),
        ("followers", &["u-1"]),
        ("viewers", &["u-1", "u-3"]),
    ] {
        for member in members.iter().map(|member| UserId::new(member).unwrap()) {
            world.put(&set(counter), &member, true).await;
        }
    }
    let said = async |subject, counters: &[&str]| {
        let (done, records) = erased(&world, subject, counters).await;
        let said = records.iter().map(|(_, value)| {
            let event = decode_value(Some(value), BEGAN, &defined()).unwrap();
            let action = serde_json::from_slice::<Value>(value).unwrap()["action"].as_str().unwrap().to_owned();
            format!("{action} {} {}", event.subject(), event.member().unwrap())
        });
        let mut said: Vec<String> = said.collect();
        said.sort();
        (done.map(|done| done.left.values().sum::<u64>()).map_err(|error| error.to_string()), said)
    };
    let users = ["unfollow p-0 u-1", "unlike p-0 u-1", "unretweet p-0 u-1"].map(str::to_owned);
    assert_eq!(said(of_user(1), &[]).await, (Ok(1), users.to_vec()), "as a viewer the user is left");
    let of_the_post = ["unlike p-0 u-1", "unlike p-0 u-2", "unreply p-0 u-1", "unretweet p-0 u-1"];
    assert_eq!(said(of_post(0), &[]).await, (Ok(2), of_the_post.map(str::to_owned).to_vec()));
    assert_eq!(said(of_post(0), &["followers"]).await, (Ok(0), users[..1].to_vec()), "a hashtag's");
    let likes = ["unlike p-0 u-1", "unlike p-0 u-2"].map(str::to_owned);
    assert_eq!(said(of_post(0), &["likes"]).await, (Ok(0), likes.to_vec()));
    for (subject, name, why) in [
        (of_post(0), "views", "counter views cannot be erased from: it is a sum, which has no members"),
        (of_user(1), "replies", "counter replies cannot be erased from: its members are no users"),
        (of_post(0), "nope", "there is no counter nope"),
    ] {
        assert_eq!(said(subject, &[name]).await, (Err(why.to_owned()), vec![]));
    }
}
