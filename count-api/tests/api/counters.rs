//! Tests the HTTP routes that read counters: of every kind, of posts and of hashtags, one at a time, all of a post, and
//! in batches.

use std::collections::BTreeSet;

use http_body_util::Full;
use serde_json::{Value, json};
use tally_count_api::Config;
use tally_emulator::{Fault, Rule};

use crate::harness::{
    Api, BEGAN, CACHED, With, counter_id, eventually, get, get_with, partition, post, request, send, uncached,
};

#[tokio::test]
async fn the_definitions_are_listed_without_what_they_do_not_have() {
    let api = Api::start(Config::default(), With::default()).await;
    let answer = get(api.address, "/v1/counters").await;
    let set = |name: &str, add: &str, member: &str| json!({"name": name, "kind": "set", "add": add, "member": member});
    let with = |mut entry: serde_json::Value, field: &str, value: &str| {
        entry[field] = value.into();
        entry
    };
    let of_post = |entry| with(entry, "subject", "post_id");
    let expected = json!({"counters": [
        of_post(with(set("likes", "like", "user_id"), "remove", "unlike")),
        of_post(with(set("retweets", "retweet", "user_id"), "remove", "unretweet")),
        of_post(set("replies", "reply", "reply_id")),
        {"name": "views", "kind": "sum", "add": "view", "subject": "post_id"},
        {"name": "score", "kind": "sum", "add": "up", "remove": "down", "subject": "post_id"},
        with(with(set("posts", "tag", "post_id"), "subject", "hashtag"), "topic", "posts"),
        {"name": "searches", "kind": "sum", "add": "search", "subject": "hashtag"},
    ]});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, expected));
}

#[tokio::test]
async fn a_counter_of_any_kind_is_read_as_likes_are_and_is_not_sent_again_until_it_changes() {
    let api = Api::start(uncached(), CACHED).await;
    api.plant("p", 3, 4).await;
    api.plant_counter("p", "retweets", 42, 57).await;
    api.plant_counter("p", "views", 1_300, 90).await;
    api.plant_counter("c#/é", "posts", 5, 6).await;
    for (target, named, version) in [
        ("posts/p/likes", json!({"post_id": "p", "likes": 3}), 4),
        ("posts/q/likes", json!({"post_id": "q", "likes": 0}), 0),
        ("posts/p/counters/likes", json!({"post_id": "p", "counter": "likes", "value": 3}), 4),
        ("posts/p/counters/retweets", json!({"post_id": "p", "counter": "retweets", "value": 42}), 57),
        ("posts/p/counters/views", json!({"post_id": "p", "counter": "views", "value": 1_300}), 90),
        ("posts/p/counters/replies", json!({"post_id": "p", "counter": "replies", "value": 0}), 0),
        ("hashtags/c%23%2F%C3%A9/counters/posts", json!({"hashtag": "c#/é", "counter": "posts", "value": 5}), 6),
    ] {
        let target = format!("/v1/{target}");
        let answer = get(api.address, &target).await;
        let mut expected = json!({"version": version, "exact": true, "as_of": BEGAN.0, "fresh": true});
        expected.as_object_mut().unwrap().extend(named.as_object().unwrap().clone());
        assert_eq!((answer.status.as_u16(), answer.json()), (200, expected), "{target}");
        let tag = format!("W/\"{version}.1\"");
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
        assert_eq!(answer.header("cache-control"), Some("public, max-age=1, must-revalidate"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(answer.header("x-request-id").is_some());
        let known = get_with(api.address, &target, ("if-none-match", &tag)).await;
        assert_eq!((known.status.as_u16(), known.body.len()), (304, 0));
        assert_eq!(known.header("etag"), Some(tag.as_str()));
        assert_eq!(get_with(api.address, &target, ("if-none-match", "W/\"91.1\"")).await.status, 200);
    }
    let later = Api::start(uncached(), With::default()).await;
    for (version, status) in [(7, 304), (8, 200)] {
        later.plant("p", 3, version).await;
        for target in ["/v1/posts/p/likes", "/v1/posts/p/counters/likes"] {
            let known = get_with(later.address, target, ("if-none-match", "W/\"7.1\"")).await;
            assert_eq!(known.status.as_u16(), status, "{target}");
        }
    }
}

#[tokio::test]
async fn what_is_not_defined_for_a_subject_is_no_counter_of_it() {
    let api = Api::start(uncached(), With::default()).await;
    let of_posts = ["nothing", "posts", "searches", "+views", "Likes", "%2Bviews", "a%1Fb"];
    let of_posts = of_posts.map(|name| format!("posts/p/counters/{name}"));
    let of_hashtags = ["likes", "views", "nothing"].map(|name| format!("hashtags/rust/counters/{name}"));
    for target in of_posts.iter().chain(&of_hashtags) {
        let answer = get(api.address, &format!("/v1/{target}")).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (404, "unknown-counter"), "{target}");
    }
    let bad_path = get(api.address, "/v1/posts/p/counters/%ff").await;
    assert_eq!((bad_path.status.as_u16(), bad_path.problem().as_str()), (400, "bad-path"));
    let bad_id = get(api.address, "/v1/hashtags/%00/counters/posts").await;
    assert_eq!((bad_id.problem().as_str(), &bad_id.json()["parameter"]), ("bad-id", &json!("hashtag")));
    assert_eq!(api.tables.reads(), 0);
}

#[tokio::test]
async fn all_counters_of_a_post_are_one_read() {
    let api = Api::start(uncached(), With::default()).await;
    api.plant_counter("p", "retweets", 42, 57).await;
    api.plant_counter("p", "score", -1, 3).await;
    let answer = get(api.address, "/v1/posts/p/counters").await;
    let of = |value: i64, version: u64| json!({"value": value, "version": version, "exact": true, "as_of": BEGAN.0, "fresh": true});
    let expected = json!({"post_id": "p", "counters": {
        "likes": of(0, 0), "retweets": of(42, 57), "replies": of(0, 0), "views": of(0, 0), "score": of(-1, 3),
    }});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, expected));
    assert_eq!(api.tables.reads(), 1);
    let tag = "W/\"0.1_57.1_0.1_0.1_3.1\"";
    assert_eq!(answer.header("etag"), Some(tag));
    let known = async || get_with(api.address, "/v1/posts/p/counters", ("if-none-match", tag)).await.status.as_u16();
    assert_eq!(known().await, 304);
    api.plant_counter("p", "score", -2, 4).await;
    assert_eq!(known().await, 200);
    for name in ["likes", "retweets", "replies", "views", "score"] {
        api.tables.damage(&counter_id("damaged", name)).await;
    }
    let damaged = get(api.address, "/v1/posts/damaged/counters").await.json();
    assert_eq!((&damaged["counters"], damaged["unreadable"].as_array().unwrap().len()), (&json!({}), 5));
    for target in ["/v1/posts/damaged/likes", "/v1/posts/damaged/counters/views"] {
        let answer = get(api.address, target).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (500, "internal"), "{target}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("canary"));
    }
    let hashtag = get(api.address, "/v1/hashtags/rust/counters").await.json();
    assert_eq!(hashtag, json!({"hashtag": "rust", "counters": {"posts": of(0, 0), "searches": of(0, 0)}}));
}

/// 25 posts and the 4 counters that a page shows of each.
fn page() -> (Vec<String>, [&'static str; 4]) {
    ((0..25).rev().map(|n| format!("p{n}")).collect(), ["views", "likes", "retweets", "replies"])
}

async fn batch(api: &Api, what: &str, body: &Value) -> Value {
    let answer = post(api.address, &format!("/v1/{what}:batchGet"), &body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn a_page_of_posts_is_one_read_of_the_table_or_one_call_of_the_cache_for_each_partition() {
    let api = Api::start(uncached(), CACHED).await;
    let (posts, names) = page();
    for (n, post) in (1..).zip(&posts) {
        for name in names {
            api.plant_counter(post, name, n, 7).await;
        }
    }
    let asked = json!({"post_ids": posts, "counters": names});
    let answered = batch(&api, "counters", &asked).await;
    let pairs: Vec<_> =
        answered["counts"].as_array().unwrap().iter().map(|it| (&it["post_id"], &it["counter"])).collect();
    let expected: Vec<_> = posts.iter().flat_map(|post| names.map(|name| (json!(post), json!(name)))).collect();
    assert_eq!(pairs, expected.iter().map(|(post, name)| (post, name)).collect::<Vec<_>>());
    let ids: Vec<_> = posts.iter().flat_map(|post| names.map(|name| counter_id(post, name))).collect();
    let partitions = ids.iter().map(partition).collect::<BTreeSet<_>>().len();
    assert_eq!((api.tables.reads(), api.tables.cache.gets()), (1, partitions));
    for id in &ids {
        eventually("it is cached", async || api.tables.held(id).await.is_some()).await;
    }
    assert_eq!(batch(&api, "counters", &asked).await, answered);
    assert_eq!((api.tables.reads(), api.tables.cache.gets()), (1, 2 * partitions), "the table is not asked again");
    let likes = batch(&api, "likes", &json!({"post_ids": posts})).await;
    let pairs = likes["counts"].as_array().unwrap().iter().map(|it| (it["post_id"].clone(), it["likes"].as_i64()));
    let expected = (1..).zip(&posts).map(|(n, post)| (json!(post), Some(n)));
    assert!(pairs.eq(expected), "{likes}");
    assert_eq!(api.tables.reads(), 1);
}

#[tokio::test]
async fn a_page_of_posts_is_a_request_for_each_hundred_numbers_and_rows_of_a_member() {
    let api = Api::start(uncached(), With::default()).await;
    api.tables.plant_row(&counter_id("p7", "retweets"), "u").await;
    let counted = |table: &str| Rule::new(Fault::Latency { min_ms: 0, max_ms: 0 }).on("BatchGetItem").table(table);
    api.tables.store.faults(["like_counts", "likes"].map(counted));
    for (posts, requests) in [(25, 1 + 1), (100, 4 + 3)] {
        let before = api.tables.reads();
        let ids: Vec<String> = (0..posts).map(|n| format!("p{n}")).collect();
        let answer = batch(&api, "counters", &json!({"post_ids": ids, "counters": page().1, "member": "u"})).await;
        let counts = answer["counts"].as_array().unwrap();
        let mine: Vec<_> =
            counts.iter().filter(|it| it["mine"] == true).map(|it| (&it["post_id"], &it["counter"])).collect();
        assert_eq!((counts.len(), mine), (posts * 4, vec![(&json!("p7"), &json!("retweets"))]));
        assert_eq!(api.tables.reads() - before, requests, "{posts} posts");
    }
    let twice =
        batch(&api, "counters", &json!({"post_ids": ["p7", "p7"], "counters": ["retweets"], "member": "u"})).await;
    assert_eq!((&twice["counts"][0]["mine"], &twice["counts"][1]["mine"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn a_batch_has_every_counter_where_none_is_named_and_says_which_cannot_be_read() {
    let api = Api::start(uncached(), CACHED).await;
    let all = batch(&api, "counters", &json!({"post_ids": ["q"]})).await;
    let names: Vec<_> = all["counts"].as_array().unwrap().iter().map(|it| it["counter"].as_str().unwrap()).collect();
    assert_eq!(names, ["likes", "retweets", "replies", "views", "score"]);
    assert_eq!(batch(&api, "counters", &json!({"post_ids": []})).await, json!({"counts": []}));
    assert_eq!(batch(&api, "counters", &json!({"post_ids": ["p"], "counters": []})).await, json!({"counts": []}));
    api.tables.damage(&counter_id("damaged", "views")).await;
    let damaged = batch(&api, "counters", &json!({"post_ids": ["damaged", "p", "p"], "counters": ["views"]})).await;
    assert_eq!(damaged["counts"].as_array().unwrap().len(), 2);
    assert_eq!(damaged["unreadable"], json!([{"post_id": "damaged", "counter": "views"}]));
    api.plant("p", 3, 1).await;
    api.tables.damage(&counter_id("damaged", "likes")).await;
    let likes = batch(&api, "likes", &json!({"post_ids": ["p", "damaged", "q", "p"]})).await;
    let counts: Vec<_> = likes["counts"].as_array().unwrap().iter().map(|it| (&it["post_id"], &it["likes"])).collect();
    let (p, q) = ((&json!("p"), &json!(3)), (&json!("q"), &json!(0)));
    assert_eq!((counts, &likes["unreadable"]), (vec![p, q, p], &json!(["damaged"])));
    assert_eq!(batch(&api, "likes", &json!({"post_ids": []})).await, json!({"counts": []}));
    let most = batch(&api, "counters", &json!({"post_ids": vec!["p"; 100], "counters": page().1})).await;
    assert_eq!(most["counts"].as_array().unwrap().len(), 400);
}

#[tokio::test]
async fn a_batch_that_is_too_large_or_malformed_is_refused_by_name() {
    let api = Api::start(uncached(), CACHED).await;
    let (many, four) = (vec!["p"; 101], page().1);
    let (none, ids) = (json!([null, null]), json!(["post_ids", null]));
    let of_both = [
        (String::new(), 400, "bad-body", none.clone()),
        ("null".to_owned(), 400, "bad-body", none.clone()),
        ("[]".to_owned(), 400, "bad-body", none.clone()),
        ("{}".to_owned(), 400, "bad-body", ids.clone()),
        (r#"{"post_ids":"a"}"#.to_owned(), 400, "bad-body", ids.clone()),
        (r#"{"post_ids":["a",1]}"#.to_owned(), 400, "bad-body", json!(["post_ids", 1])),
        (r#"{"post_ids":["a"],"x":1}"#.to_owned(), 400, "bad-body", json!(["x", null])),
        (r#"{"post_ids":["a"]} x"#.to_owned(), 400, "bad-body", none.clone()),
        (json!({ "post_ids": many }).to_string(), 400, "bad-body", ids.clone()),
        (r#"{"post_ids":["a","b",""]}"#.to_owned(), 400, "bad-id", json!(["post_ids", 2])),
        (r#"{"post_ids":["\u0001"]}"#.to_owned(), 400, "bad-id", json!(["post_ids", 0])),
        (format!(r#"{{"post_ids":["{}"]}}"#, "a".repeat(300_000)), 413, "body-too-large", none.clone()),
    ];
    let of_counters = [
        (json!({"post_ids": many, "counters": four}), 400, "bad-body", ids.clone()),
        (json!({"post_ids": vec!["p"; 401], "counters": []}), 400, "bad-body", ids),
        (json!({"post_ids": ["p"], "counters": ["posts"]}), 404, "unknown-counter", none),
        (json!({"post_ids": ["p"], "counters": [1]}), 400, "bad-body", json!(["counters", 0])),
        (json!({"post_ids": ["p"], "member": ""}), 400, "bad-id", json!(["member", null])),
    ];
    let of_counters = of_counters.map(|(body, status, problem, at)| (body.to_string(), status, problem, at));
    for (what, rows) in [("likes", &of_both[..]), ("counters", &of_both), ("counters", &of_counters)] {
        let target = format!("/v1/{what}:batchGet");
        for (body, status, problem, at) in rows {
            let answer = post(api.address, &target, body).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (*status, *problem), "{what} {body}");
            let said = answer.json();
            assert_eq!(&json!([said.get("parameter"), said.get("index")]), at, "{what} {body}: {said}");
        }
        let text = send(api.address, request("POST", &target).body(Full::from("{}")).unwrap()).await;
        assert_eq!((text.status.as_u16(), text.problem().as_str()), (415, "not-json"));
    }
    for (what, detail) in
        [("likes", "101 are more than 100"), ("counters", "101 posts of 5 counters are more than 400 numbers")]
    {
        let large = post(api.address, &format!("/v1/{what}:batchGet"), &of_both[8].0).await;
        assert_eq!(large.json()["detail"], format!("body: post_ids: {detail}"));
    }
    assert_eq!(api.tables.reads(), 0);
}
