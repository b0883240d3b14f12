//! Tests how readers see the rows of the table `likes`: what each counts for (its weight), and who is a member.

use serde_json::{Value, json};
use tally_adapters::dynamodb::{Rows, Segment};
use tally_core::ids::RowKey;
use tally_core::weight::Weight;
use tally_testkit::Store;

#[tokio::test(start_paused = true)]
async fn rows_with_a_weight_are_read_with_it_and_only_members_are_listed() {
    let store = Store::start().await;
    let put = async |sort: &str, n: Option<Value>| {
        let mut row = json!({"pk": {"S": "p#+views.3"}, "user_id": {"S": sort}});
        if let Some(n) = n {
            row["n"] = n;
        }
        store.call("PutItem", json!({"TableName": "likes", "Item": row})).await;
    };
    // Cells of a sum: the amounts that came by the partitions 3, 7 and 11 of the topic `views`. One has no amount.
    put("\u{1}cell/views/3", Some(json!({"N": "25"}))).await;
    put("\u{1}cell/views/7", Some(json!({"N": "-1000000000000000000"}))).await;
    put("\u{1}cell/views/11", None).await;
    // Another reserved item counts for nothing.
    put("\u{1}homes", Some(json!({"N": "5"}))).await;
    put("member", Some(json!({"N": "0"}))).await;
    put("unreadable", Some(json!({"S": "25"}))).await;
    put("too much", Some(json!({"N": "1000000000000000001"}))).await;
    let (rows, key): (_, RowKey) = (Rows::new(&store.connection), "p#+views.3".parse().unwrap());
    let weights = rows.weights(&key, None).await.unwrap().items;
    let weights: Vec<_> =
        weights.iter().filter_map(|(member, weight)| Some((member.as_str(), weight.as_ref()?.get()))).collect();
    let expected = [("\u{1}cell/views/3", 25), ("\u{1}cell/views/7", -Weight::MAX), ("member", 0)];
    assert_eq!(weights, expected);
    let users = rows.users(&key, None).await.unwrap().items;
    assert_eq!(users.iter().map(|row| row.user.as_str()).collect::<Vec<_>>(), ["member", "too much", "unreadable"]);
    assert_eq!(rows.likes(&key, None, None).await.unwrap().items, [], "none is a like");
    let scanned = rows.scan(Segment { index: 0, of: 1 }, None).await.unwrap().items;
    let scanned: Vec<_> = scanned.iter().filter_map(|row| Some((row.sort.as_str(), row.weight()?.get()))).collect();
    assert_eq!(scanned, expected);
}
