//! Tests of `tally user erase` and `tally post erase`, over DynamoDB's emulator: which events they produce to take
//! members out of counters, such as users out of likes, and what they leave.

use serde_json::{Value, json};
use tally_adapters::memory::log::Broker;
use tally_core::event::decode;
use tally_service::{Chance, Clock, Patience, Switch};
use tally_testkit::{BEGAN, Store, definitions, post, records, set, user};

use super::*;

/// When the tombstones expire, in seconds since 1970: later than any test lasts.
const GONE: u64 = 1_800_000_000;

/// Puts a row, live or as a tombstone.
async fn put(store: &Store, counter: &CounterId, user: &UserId, live: bool) {
    let key = RowKey::of(counter, user.as_str(), shards()).to_string();
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

/// Erases from these sets, or from all. Returns the events that were produced, in order, each by its action, its subject
/// and its member.
async fn erased(store: &Store, subject: Subject, counters: &[&str]) -> (anyhow::Result<Erased>, Vec<String>) {
    let (broker, topics) = (Broker::new(), ["likes", "tags"]);
    topics.iter().for_each(|topic| broker.create_topic(topic, 1));
    let counters: Vec<String> = counters.iter().map(|name| (*name).to_owned()).collect();
    let sets = match sets(&definitions(), &counters, &subject) {
        Ok(sets) => sets,
        Err(refused) => return (Err(refused), Vec::new()),
    };
    let patience = Patience::new(Clock::starting_at(BEGAN), Chance::seeded(1));
    let calls = Calls::new(None, patience, Switch::new().stop());
    let topic = "likes".to_owned();
    let erasing = Erasing { rows: Rows::new(&store.connection), shards: shards(), calls, sets, subject, topic };
    let (done, mut events) = (erasing.run(Some(&broker)).await, Vec::new());
    for topic in topics {
        for (_, run) in records(&broker.reader("test", topic)).await.unwrap() {
            events.extend(run.iter().map(|record| {
                let event = decode(record, &definitions().said_in(topic)).unwrap();
                assert_eq!(record.key, Some(event.subject().as_bytes()));
                let action = serde_json::from_slice::<Value>(record.value.unwrap()).unwrap()["action"].clone();
                format!("{} {} {}", action.as_str().unwrap(), event.subject(), event.member().unwrap())
            }));
        }
    }
    events.sort();
    (done, events)
}

fn of_user(n: u64) -> Subject {
    Subject::Users([user(n)].into())
}

fn of_post(n: u64) -> Subject {
    Subject::Post(post(n).post)
}

#[tokio::test(start_paused = true)]
async fn an_erasure_takes_nobody_out_twice_and_says_which_tombstones_stay_and_until_when() {
    let store = Store::start().await;
    for (n, u) in (0..2).flat_map(|n| (0..3).map(move |u| (n, u))) {
        put(&store, &post(n), &user(u), n == 1 || u == 0).await;
    }
    for (subject, read, tombstones) in [(of_user(1), 6, 1), (of_post(0), 3, 2)] {
        let (done, events) = erased(&store, subject.clone(), &[]).await;
        let done = done.unwrap();
        assert_eq!((done.read, done.found, done.produced, events.len()), (read, 1, 1, 1));
        let stay = format!(
            "tombstones of earlier unlikes: {tombstones}, which stay for 2 h and until the table's TTL deletes them"
        );
        let lines = done.lines(&subject, UnixMillis((GONE - 3_601) * 1_000));
        assert_eq!(lines.last(), Some(&stay));
    }
    let (done, _) = erased(&store, of_post(1), &[]).await;
    assert_eq!(done.unwrap().lines(&of_post(1), BEGAN), ["3 rows read, 3 members found"]);
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
        let (done, events) = erased(&store, subject, counters).await;
        (done.map(|done| done.left.values().sum::<u64>()).map_err(|error| error.to_string()), events)
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
