//! Writes rows of the likes table directly, in place of a consumer.

use std::collections::BTreeMap;

use serde_json::json;
use tally_service::Chance;
use tally_testkit::Store;

/// Writes likes and unlikes at random, each of some user and some post; `rows` has those that exist.
pub(crate) async fn churn(
    store: &Store,
    chance: &Chance,
    rows: &mut BTreeMap<(u64, u64), ()>,
    (changes, posts, users): (usize, u64, u64),
) {
    for _ in 0..changes {
        let (p, u) = (chance.token() % posts, chance.token() % users);
        let key = json!({"pk": {"S": format!("p-{p}#{}", u % 4)}, "user_id": {"S": format!("u-{u}")}});
        if rows.remove(&(p, u)).is_some() {
            store.call("DeleteItem", json!({"TableName": "likes", "Key": key})).await;
        } else {
            rows.insert((p, u), ());
            let mut item = key;
            item["post_id"] = json!({"S": format!("p-{p}")});
            item["liked_at"] = json!({"N": "1"});
            store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
        }
    }
}
