//! Erasures of posts and users over the emulator: which events they produce, and what they leave.

use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::{Value, json};
use tally_adapters::dynamodb::Rows;
use tally_core::definitions::Definitions;
use tally_core::event::{Deed, decode_value};
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_core::topic::Offset;
use tally_service::{Chance, Clock, Patience, Switch};
use tally_testkit::{BEGAN, Store, definitions, post, set, user};

use super::erasing::Tombstones;
use super::*;

/// When the tombstones expire, in seconds since 1970: later than any test lasts.
const GONE: u64 = 1_800_000_000;

/// A record's key and value.
type Record = (String, Vec<u8>);

/// A producer that keeps what it is given.
#[derive(Default)]
struct Kept(Mutex<Vec<Record>>);

#[async_trait]
impl Producer for Kept {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
        self.0.lock().unwrap().push((key, record.value.unwrap().to_vec()));
        Ok(Written { partition: 0, offset: Offset(0) })
    }
}

/// Writes `users` likes for each of the posts.
async fn fill(store: &Store, posts: u64, users: u64) {
    for (n, u) in (0..posts).flat_map(|n| (0..users).map(move |u| (n, u))) {
        put(store, &post(n), &user(u), true).await;
    }
}

/// Puts a row, live or as a tombstone.
async fn put(store: &Store, post: &CounterId, user: &UserId, live: bool) {
    let key = RowKey::of(post, user.as_str(), shards()).to_string();
    let mut row = json!({"pk": key, "user_id": user.as_str()});
    if live {
        (row["v"], row["liked_at"]) = (1.into(), 1.into());
    } else {
        row["gone"] = GONE.into();
    }
    store.put("likes", &row).await;
}

fn shards() -> ShardCount {
    ShardCount::new(4).unwrap()
}

/// Runs an erasure, which sends its events to `producer` if there is one.
async fn carried_out(
    store: &Store,
    producer: Option<&dyn Producer>,
    subject: Subject,
    (defined, counters): (&Definitions, &[&str]),
) -> anyhow::Result<Erased> {
    let counters: Vec<String> = counters.iter().map(|name| (*name).to_owned()).collect();
    let patience = Patience::new(Clock::starting_at(BEGAN), Chance::seeded(1));
    let erasing = Erasing {
        rows: Rows::new(&store.connection),
        shards: shards(),
        calls: Calls::new(None, patience, Switch::new().stop()),
        sets: sets(defined, &counters, &subject)?,
        subject,
        topic: "likes".to_owned(),
    };
    erasing.run(producer).await
}

/// Erases likes. Returns the events that were produced, in order.
async fn erased(store: &Store, subject: Subject) -> (anyhow::Result<Erased>, Vec<Record>) {
    erased_from(store, subject, (&Definitions::likes_alone(), &[])).await
}

async fn erased_from(
    store: &Store,
    subject: Subject,
    of: (&Definitions, &[&str]),
) -> (anyhow::Result<Erased>, Vec<Record>) {
    let kept = Kept::default();
    let erased = carried_out(store, Some(&kept), subject, of).await;
    let mut records = std::mem::take(&mut *kept.0.lock().unwrap());
    records.sort();
    (erased, records)
}

fn of_user(n: u64) -> Subject {
    Subject::Users([user(n)].into())
}

fn of_post(n: u64) -> Subject {
    Subject::Post(post(n).post)
}

#[tokio::test(start_paused = true)]
async fn an_erasure_produces_an_unlike_for_every_like_and_a_dry_run_none() {
    let store = Store::start().await;
    fill(&store, 5, 30).await;
    let (done, records) = erased(&store, of_user(7)).await;
    let users = [user(7)].into();
    assert_eq!(done.unwrap(), Erased { read: 150, users, found: 5, produced: 5, ..Erased::default() });
    let keys: Vec<_> = records.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, (0..5).map(|n| post(n).post.to_string()).collect::<Vec<_>>());
    let (_, unlikes) = erased(&store, of_post(2)).await;
    assert_eq!(unlikes.len(), 30);
    for (key, value) in &unlikes {
        let event = decode_value(Some(value), BEGAN, &Definitions::likes_alone()).unwrap();
        assert_eq!(key, "p-2");
        assert!(matches!(event.deed, Deed::Member { present: false, .. }), "{event:?}");
    }
    let dry = carried_out(&store, None, of_post(2), (&Definitions::likes_alone(), &[])).await;
    assert_eq!(dry.unwrap(), Erased { read: 30, found: 30, ..Erased::default() });
}

#[tokio::test(start_paused = true)]
async fn an_erasure_takes_nobody_out_twice_and_says_which_tombstones_stay_and_until_when() {
    let store = Store::start().await;
    fill(&store, 2, 3).await;
    put(&store, &post(0), &user(1), false).await;
    put(&store, &post(0), &user(2), false).await;
    let tombstones = |rows| Tombstones { rows, until: Some(GONE) };
    for (subject, read, rows) in [(of_user(1), 6, 1), (of_post(0), 3, 2)] {
        let (done, records) = erased(&store, subject).await;
        let done = done.unwrap();
        assert_eq!((done.read, done.found, done.produced, records.len()), (read, 1, 1, 1));
        assert_eq!(done.tombstones, tombstones(rows));
    }
    let (done, _) = erased(&store, of_post(1)).await;
    assert_eq!(done.unwrap().tombstones, Tombstones::default());
    let now = UnixMillis((GONE - 3_601) * 1_000);
    let said = "tombstones of earlier unlikes: 2, which stay for 2 h and until the table's TTL deletes them";
    assert_eq!(tombstones(2).stay(now).as_deref(), Some(said));
    assert_eq!(Tombstones::default().stay(now), None);
}

#[tokio::test(start_paused = true)]
async fn an_erasure_sends_each_set_its_own_remove_action_and_says_which_sets_have_none() {
    let store = Store::start().await;
    for (counter, members) in [
        ("likes", &["u-1", "u-2"][..]),
        ("retweets", &["u-1"]),
        ("replies", &["u-1"]),
        ("followers", &["u-1"]),
        ("viewers", &["u-1", "u-3"]),
    ] {
        for member in members.iter().map(|member| UserId::new(member).unwrap()) {
            put(&store, &set(counter), &member, true).await;
        }
    }
    let said = async |subject, counters: &[&str]| {
        let (done, records) = erased_from(&store, subject, (&definitions(), counters)).await;
        let said = records.iter().map(|(_, value)| {
            let event = decode_value(Some(value), BEGAN, &definitions()).unwrap();
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
