//! Tests how counters are read from their table: what counts as missing, what is read again, and damaged items.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::counters::Written;
use tally_adapters::dynamodb::{Consistency, Segment};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId};
use tally_testkit::{BEGAN, every};

use super::{TABLE, gained, key, likes, start, stored, update, write};

#[tokio::test(start_paused = true)]
async fn counters_are_read_by_name_missing_ones_are_left_out_and_a_damaged_one_is_named() {
    let (store, counters) = start().await;
    let counter = stored(&counters, "p").await;
    stored(&counters, "damaged").await;
    store.edit(TABLE, key("damaged"), "likes", json!({"S": "many"})).await;
    let poison = Fault::Poison("table like_counts, item post_id \"damaged\": likes: not a number".to_owned());
    let views =
        CounterId { post: PostId::new("p").unwrap(), name: CounterName::new("views", CounterKind::Sum).unwrap() };
    let mut insert = update("p", None, &gained(None, 0, 7, 3));
    insert.counter = views.clone();
    assert_eq!(write(&counters, &insert).await, Written::Stored);
    tokio::time::advance(Duration::from_secs(1)).await;
    for consistency in [Consistency::Eventual, Consistency::Strong] {
        let asked = [likes("q"), likes("p"), views.clone(), likes("p"), likes("damaged")];
        let found = counters.read(&asked, consistency).await.unwrap().counters;
        let [p, damaged] = [(likes("p"), Ok(counter.clone())), (likes("damaged"), Err(poison.clone()))];
        assert_eq!(found, [p, damaged, (views.clone(), Ok(insert.after.clone()))].into());
    }
}

#[tokio::test(start_paused = true)]
async fn a_counter_only_counts_as_missing_if_the_reserved_row_exists() {
    let (store, counters) = start().await;
    let reserved = async |posts: &[&str]| {
        let ids: Vec<_> = posts.iter().map(|post| likes(post)).collect();
        counters.read(&ids, Consistency::Strong).await.unwrap().reserved
    };
    stored(&counters, "p").await;
    assert_eq!((reserved(&["p", "q"]).await, reserved(&["p"]).await), (false, true));
    for _ in 0..2 {
        counters.put_reserved().await.unwrap();
        assert!(reserved(&["p", "q"]).await);
    }
    assert_eq!(counters.read(&[likes("q")], Consistency::Strong).await.unwrap().since, None);
    counters.put_reserved_since(BEGAN).await.unwrap();
    assert_eq!(counters.renew_reserved().await, Ok(true), "it stays what it is");
    assert_eq!(counters.read(&[likes("q")], Consistency::Strong).await.unwrap().since, Some(BEGAN));
    let asked = store.requests("GetItem");
    assert!(reserved(&["p"]).await);
    assert_eq!(store.requests("GetItem"), asked, "it is read only where a counter is absent");
    assert!("\u{1}reserved".parse::<CounterId>().is_err(), "no counter has its key");
}

#[tokio::test(start_paused = true)]
async fn a_scan_returns_each_counter_once_and_nothing_else() {
    let (store, counters) = start().await;
    counters.put_reserved().await.unwrap();
    let remote = json!({"post_id": {"S": "p-1\u{1f}@eu"}, "likes": {"N": "5"}, "version": {"N": "1"}});
    store.call("PutItem", json!({"TableName": TABLE, "Item": remote})).await;
    let mut expected = BTreeMap::new();
    for n in 0..40 {
        let post = format!("p-{n}");
        expected.insert(likes(&post), Ok(stored(&counters, &post).await));
    }
    store.edit(TABLE, key("p-7"), "likes", json!({"S": "many"})).await;
    let mut found = Vec::new();
    for index in 0..3 {
        found.extend(every(async |after| counters.scan(Segment { index, of: 3 }, after).await).await.unwrap());
    }
    assert_eq!(found.len(), 40);
    let mut found: BTreeMap<_, _> = found.into_iter().collect();
    assert!(matches!(found.remove(&likes("p-7")), Some(Err(Fault::Poison(_)))));
    expected.remove(&likes("p-7"));
    assert_eq!(found, expected);
}
