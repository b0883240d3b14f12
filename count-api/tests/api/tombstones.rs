//! Rows of members that were removed: no answer shows them.

use serde_json::json;
use tally_core::ids::{RowKey, ShardCount};
use tally_count_api::Config;

use crate::harness::{Api, With, counter_id, get, post, post_id};

#[tokio::test]
async fn nothing_shows_a_tombstone() {
    let api = Api::counting(Config::default(), With::default()).await;
    for id in [post_id("p"), counter_id("p", "retweets")] {
        for nth in 0..120 {
            api.tables.plant_tombstone(&id, &format!("was-{nth}")).await;
        }
        api.tables.plant_row(&id, "is").await;
    }
    for target in ["likers", "counters/likes/members", "counters/retweets/members"] {
        // All of it, also where a page holds one.
        for query in ["", "?limit=1"] {
            let page = get(api.address, &format!("/v1/posts/p/{target}{query}")).await.json();
            let listed = page.get("likers").or(page.get("members")).unwrap().as_array().unwrap().clone();
            let ids: Vec<_> = listed.iter().map(|one| one.get("user_id").or(one.get("member")).unwrap()).collect();
            assert_eq!(ids, ["is"], "{target}{query}");
        }
    }
    for (member, is_in) in [("is", true), ("was-7", false)] {
        let like = get(api.address, &format!("/v1/posts/p/likes/{member}")).await.json();
        assert_eq!((&like["liked"], like.get("liked_at").is_some()), (&json!(is_in), is_in));
        let state = get(api.address, &format!("/v1/posts/p/counters/retweets/members/{member}")).await.json();
        assert_eq!((&state["present"], state.get("since").is_some()), (&json!(is_in), is_in));
        let asked = json!({"post_ids": ["p"], "counters": ["likes", "retweets"], "member": member}).to_string();
        let batch = post(api.address, "/v1/counters:batchGet", &asked).await.json();
        let mine: Vec<_> = batch["counts"].as_array().unwrap().iter().map(|count| &count["mine"]).collect();
        assert_eq!(mine, [&json!(is_in), &json!(is_in)]);
    }
}

#[tokio::test]
async fn a_page_that_has_much_to_pass_over_ends_with_what_it_has_and_the_next_one_goes_on() {
    let api = Api::start(Config::default(), With::default()).await;
    // Of 40 KB, and ten read units, each.
    let (id, large) = (post_id("p"), "x".repeat(40_000));
    for nth in 0..120 {
        let member = format!("was-{nth}");
        api.tables.plant_tombstone(&id, &member).await;
        let key = RowKey::of(&id, &member, ShardCount::DEFAULT).to_string();
        let key = json!({"pk": {"S": key}, "user_id": {"S": member}});
        api.tables.store.edit("likes", key, "large", json!({"S": large})).await;
    }
    for nth in 0..3 {
        api.tables.plant_row(&id, &format!("z-{nth}")).await;
    }
    let (mut seen, mut lengths, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = get(api.address, &format!("/v1/posts/p/likers?limit=100{cursor}")).await.json();
        let likers = page["likers"].as_array().unwrap();
        lengths.push(likers.len());
        seen.extend(likers.iter().map(|liker| liker["user_id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, ["z-0", "z-1", "z-2"]);
    assert!(lengths.len() > 1 && lengths.len() < 10, "{lengths:?}");
}
