//! The tables of the tests of recounts beside the real change-streamer: writes likes in place of a consumer, makes
//! counts wrong on purpose, and finds the posts whose counts do not equal their rows.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_core::ids::CounterId;
use tally_core::time::UnixMillis;
use tally_service::Chance;
use tally_testkit::{Store, is_fresh, post, until, user};

use crate::world::key;

pub(crate) struct Liked {
    pub(crate) store: Store,
    rows: BTreeSet<(u64, u64)>,
    chance: Chance,
    /// How many partitions the log of changes has.
    partitions: u32,
}

impl Liked {
    pub(crate) fn new(store: Store, partitions: u32, seed: u64) -> Self {
        Self { store, rows: BTreeSet::new(), chance: Chance::seeded(seed), partitions }
    }

    pub(crate) fn draw(&self, below: u64) -> u64 {
        self.chance.token() % below
    }

    /// Has the user like the post, or takes that back.
    pub(crate) async fn write(&mut self, n: u64, u: u64) {
        let mut item = json!({"pk": key(&post(n), &user(u)).to_string(), "user_id": user(u).to_string()});
        if self.rows.remove(&(n, u)) {
            self.store.delete("likes", &item).await;
        } else {
            self.rows.insert((n, u));
            item["liked_at"] = json!(1);
            self.store.put("likes", &item).await;
        }
    }

    pub(crate) async fn fill(&mut self, posts: std::ops::Range<u64>, users: u64) {
        for n in posts {
            for u in 0..users {
                self.write(n, u).await;
                // Lets the streamer take its turns.
                if u % 64 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    /// Adds to the count of a post's first user's row key and to the total, or to the total alone.
    pub(crate) async fn drift(&self, n: u64, with_part: bool, by: i64) {
        let part = format!("s{}", key(&post(n), &user(0)).shard);
        let (update, names) = match with_part {
            true => ("ADD #l :by, #s :by", json!({"#l": "likes", "#s": part})),
            false => ("ADD #l :by", json!({"#l": "likes"})),
        };
        let update = json!({
            "TableName": "like_counts",
            "Key": {"post_id": {"S": post(n).stored()}},
            "UpdateExpression": update,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {":by": {"N": by.to_string()}},
        });
        self.store.call("UpdateItem", update).await;
    }

    /// Waits until everything that was written by `now` is counted.
    pub(crate) async fn counted(&self, now: UnixMillis) {
        let changes = Changes::new(&self.store.repeating(5));
        let fresh = async || is_fresh(&changes, self.partitions, now).await;
        until("all partitions are fresh", Duration::from_secs(36_000), fresh).await.unwrap();
    }

    /// Returns the posts whose counts do not equal their rows.
    pub(crate) async fn wrong(&self, posts: u64) -> Vec<CounterId> {
        let counters = Counters::new(&self.store.repeating(5));
        let mut wrong = Vec::new();
        for n in 0..posts {
            let read = counters.read(&[post(n)], Consistency::Strong).await.unwrap();
            let counter = read.counters.get(&post(n)).cloned().transpose().unwrap().unwrap_or_default();
            let rows = self.rows.range((n, 0)..(n + 1, 0)).count();
            let is_right = counter.likes == i64::try_from(rows).unwrap() && counter.adds_up();
            wrong.extend((!is_right).then(|| post(n)));
        }
        wrong
    }
}
