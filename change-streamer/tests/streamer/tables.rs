//! The tables of the streamer's tests: writes rows of likes directly, in place of a consumer, and compares the counters
//! that the streamer makes of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_core::fold::Counter;
use tally_core::ids::CounterId;
use tally_service::Chance;
use tally_testkit::{Store, post};

pub(crate) struct Tables {
    pub(crate) store: Store,
    pub(crate) chance: Chance,
    /// The rows that exist, each of a post and a user.
    rows: BTreeSet<(u64, u64)>,
}

impl Tables {
    pub(crate) fn new(store: Store, seed: u64) -> Self {
        Self { store, chance: Chance::seeded(seed), rows: BTreeSet::new() }
    }

    /// Likes and unlikes at random, each of some user and some post.
    pub(crate) async fn churn(&mut self, changes: usize, posts: u64, users: u64) {
        for _ in 0..changes {
            let (p, u) = (self.chance.token() % posts, self.chance.token() % users);
            if self.rows.remove(&(p, u)) {
                let key = json!({"pk": format!("p-{p}#{}", u % 4), "user_id": format!("u-{u}")});
                self.store.delete("likes", &key).await;
            } else {
                self.put(p, u, u % 4, None).await;
            }
        }
    }

    /// Writes a like into a shard, from a region if one is named.
    pub(crate) async fn put(&mut self, p: u64, u: u64, shard: u64, region: Option<&str>) {
        self.rows.insert((p, u));
        let (pk, user, post) = (format!("p-{p}#{shard}"), format!("u-{u}"), format!("p-{p}"));
        let mut item = json!({"pk": pk, "user_id": user, "post_id": post, "liked_at": 1});
        if let Some(region) = region {
            item["region"] = json!(region);
        }
        self.store.put("likes", &item).await;
    }

    pub(crate) async fn edit_counter(&self, p: u64, attribute: &str, value: Value) {
        self.store.edit("like_counts", json!({"post_id": {"S": format!("p-{p}")}}), attribute, value).await;
    }

    pub(crate) async fn delete_counter(&self, p: u64) {
        self.store.delete("like_counts", &json!({"post_id": format!("p-{p}")})).await;
    }

    pub(crate) fn likes(&self, p: u64) -> i64 {
        i64::try_from(self.rows.range((p, 0)..(p + 1, 0)).count()).unwrap()
    }

    pub(crate) async fn counters(&self, posts: u64) -> BTreeMap<CounterId, Counter> {
        let ids: Vec<_> = (0..posts).map(post).collect();
        let read = Counters::new(&self.store.repeating(5)).read(&ids, Consistency::Strong).await.unwrap();
        read.counters.into_iter().map(|(id, counter)| (id, counter.unwrap())).collect()
    }

    /// Returns what is wrong with a counter that does not equal its rows.
    pub(crate) async fn wrong(&self, posts: u64) -> Option<String> {
        let counters = self.counters(posts).await;
        (0..posts).find_map(|p| {
            let (rows, counter) = (self.likes(p), counters.get(&post(p)).cloned().unwrap_or_default());
            let is_right = counter.likes == rows && counter.adds_up();
            (!is_right).then(|| format!("p-{p} has {rows} rows and counts {counter:?}"))
        })
    }

    pub(crate) fn changes(&self) -> Changes {
        Changes::new(&self.store.repeating(5))
    }

    /// Returns the kinds of the losses that are open.
    pub(crate) async fn losses(&self) -> Vec<String> {
        self.changes().losses().await.unwrap().open().map(|(_, loss)| loss.kind.clone()).collect()
    }
}
