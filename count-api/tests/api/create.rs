//! createCounter: over how many shards a set is spread, and what is then answered of its shards.

use serde_json::{Value, json};
use tally_adapters::dynamodb;
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::homes::{CounterMap, DecidedBy, Homes};
use tally_core::ids::{Shard, ShardCount};
use tally_core::ports::{CounterMaps as _, Segment};
use tally_core::time::UnixMillis;
use tally_count_api::{Config, Tokens};
use tally_service::Secret;

use crate::harness::{Answer, Api, BEGAN, With, ask, counter, counter_id, get, post, post_id, put, request, send};

const WRITING: With = With { cache: false, writes: true };

async fn writing() -> Api {
    Api::counting(Config::default(), WRITING).await
}

fn count(n: u64) -> ShardCount {
    ShardCount::new(n).unwrap()
}

fn shards(answer: &Answer) -> (u16, Value, Value) {
    let said = answer.json();
    (answer.status.as_u16(), said["number_of_shards"].clone(), said["decided_by"].clone())
}

#[tokio::test]
async fn a_number_is_stored_once_found_again_and_never_another() {
    let api = writing().await;
    let target = "/v1/posts/p%231/counters/likes";
    let first = put(api.address, target, r#"{"number_of_shards":32}"#).await;
    let expected = json!({"post_id": "p#1", "counter": "likes", "number_of_shards": 32,
        "decided_by": "number_of_shards", "homes": [16, 32], "newest": 32});
    assert_eq!((first.status.as_u16(), first.json()), (201, expected.clone()));
    let again = put(api.address, target, r#"{"number_of_shards":32,"followers_count":50000000}"#).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, expected.clone()));
    let by_followers = put(api.address, target, r#"{"followers_count":50000000}"#).await;
    assert_eq!((by_followers.status.as_u16(), by_followers.json()), (200, expected));
    for other in [16, 64] {
        let answer = put(api.address, target, &json!({"number_of_shards": other}).to_string()).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (409, "other-shards"), "{other}");
        assert_eq!(answer.json()["detail"], "the counter was created with 32 shards");
    }
    let stored = api.tables.maps().map(&post_id("p#1")).await.unwrap().unwrap();
    assert_eq!(
        (stored.homes(), stored.newest(), stored.asked),
        (Homes::of(count(16)).with(count(32)), count(32), Some(count(32)))
    );
    assert!(stored.decided_by == DecidedBy::NumberOfShards && stored.at >= BEGAN);
    let other = put(api.address, "/v1/posts/p%231/counters/retweets", r#"{"number_of_shards":64}"#).await;
    assert_eq!(shards(&other), (201, json!(64), json!("number_of_shards")), "each counter has its own");
    let hashtag = put(api.address, "/v1/hashtags/rust/counters/posts", r#"{"number_of_shards":64}"#).await;
    assert_eq!((hashtag.status.as_u16(), &hashtag.json()["hashtag"]), (201, &json!("rust")));
}

#[tokio::test]
async fn a_number_out_of_bounds_is_refused_and_the_bounds_are_named() {
    let api = writing().await;
    for number in ["0", "1", "8", "17", "48", "65", "128", "256", "18446744073709551615"] {
        let body = format!(r#"{{"number_of_shards":{number}}}"#);
        let answer = put(api.address, "/v1/posts/p/counters/likes", &body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-body"), "{number}");
        let said = answer.json();
        assert_eq!(said["detail"], "body: number_of_shards: it is a power of two from 16 to 64", "{number}");
        assert_eq!(said["parameter"], "number_of_shards");
    }
    for (body, parameter) in [
        ("{}", "number_of_shards"),
        (r#"{"post_type":"public"}"#, "number_of_shards"),
        (r#"{"number_of_shards":-32}"#, "number_of_shards"),
        (r#"{"number_of_shards":32.5}"#, "number_of_shards"),
        (r#"{"followers_count":"many"}"#, "followers_count"),
        (r#"{"followers_count":5,"post_type":"private"}"#, "post_type"),
        (r#"{"followers_count":5,"x":1}"#, "x"),
    ] {
        let answer = put(api.address, "/v1/posts/p/counters/likes", body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-body"), "{body}");
        assert_eq!(answer.json()["parameter"], parameter, "{body}");
    }
    let bodiless = ask(api.address, "PUT", "/v1/posts/p/counters/likes").await;
    assert_eq!((bodiless.status.as_u16(), bodiless.problem().as_str()), (415, "not-json"));
    let unknown = put(api.address, "/v1/posts/p/counters/posts", r#"{"number_of_shards":32}"#).await;
    assert_eq!((unknown.status.as_u16(), unknown.problem().as_str()), (404, "unknown-counter"));
    let elsewhere = put(api.address, "/v1/posts/p/likes/u", r#"{"number_of_shards":32}"#).await;
    assert_eq!(elsewhere.problem(), "unexpected-body", "no other PUT has a body");
    assert_eq!(*api.maps.calls.lock(), [""; 0], "nothing was read or written for any of them");
}

#[tokio::test]
async fn followers_decide_where_no_number_does() {
    let api = writing().await;
    for (post, body, expected) in [
        ("small", json!({"followers_count": 1_000}), (200, 16)),
        ("large", json!({"followers_count": 20_000_000}), (201, 32)),
        ("huge", json!({"followers_count": 50_000_000, "post_type": "public"}), (201, 64)),
        ("kept", json!({"followers_count": 50_000_000, "post_type": "protected"}), (201, 32)),
    ] {
        let target = format!("/v1/posts/{post}/counters/likes");
        let first = put(api.address, &target, &body.to_string()).await;
        assert_eq!(shards(&first), (expected.0, json!(expected.1), json!("followers_count")), "{post}");
        let again = put(api.address, &target, &body.to_string()).await;
        assert_eq!(shards(&again), (200, json!(expected.1), json!("followers_count")), "{post}");
    }
    assert_eq!(api.tables.maps().map(&post_id("small")).await, Ok(None), "the deployment's own number writes no map");
    let named = put(api.address, "/v1/posts/small/counters/likes", r#"{"number_of_shards":16}"#).await;
    assert_eq!(shards(&named), (200, json!(16), json!("number_of_shards")));
}

#[tokio::test]
async fn a_sum_is_spread_by_its_writers_and_nothing_is_stored() {
    let api = writing().await;
    for body in [r#"{"number_of_shards":64}"#, r#"{"followers_count":50000000}"#] {
        let answer = put(api.address, "/v1/posts/p/counters/views", body).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({"policy": "writer"})));
    }
    assert_eq!(*api.maps.calls.lock(), [""; 0]);
}

#[tokio::test]
async fn a_change_is_announced_before_and_after_and_completed_by_a_repetition() {
    let body = r#"{"number_of_shards":64}"#;
    let target = "/v1/posts/p/counters/likes";
    let api = writing().await;
    assert_eq!(put(api.address, target, body).await.status, 201);
    assert_eq!(*api.maps.calls.lock(), ["map", "announce", "put_map", "announce"]);
    for carried_out in [false, true] {
        for nth in 0..4 {
            let api = writing().await;
            *api.maps.failing.lock() = Some((nth, carried_out));
            let failed = put(api.address, target, body).await;
            assert_eq!((failed.status.as_u16(), failed.problem().as_str()), (503, "store-away"), "{nth}");
            assert!(!String::from_utf8_lossy(&failed.body).contains("canary"));
            let stored = api.tables.maps().map(&post_id("p")).await.unwrap();
            assert_eq!(stored.is_some(), nth == 3 || nth == 2 && carried_out);
            let before = api.maps.calls.lock().len();
            let again = put(api.address, target, body).await;
            assert_eq!(again.status.as_u16(), if stored.is_some() { 200 } else { 201 }, "{nth}");
            let calls = api.maps.calls.lock()[before..].to_vec();
            let completed =
                if stored.is_some() { vec!["map", "announce"] } else { vec!["map", "announce", "put_map", "announce"] };
            assert_eq!(calls, completed, "{nth}");
        }
    }
}

#[tokio::test]
async fn of_two_that_create_at_once_one_does_and_both_know_what_holds() {
    let api = writing().await;
    let bodies = [r#"{"number_of_shards":32}"#, r#"{"number_of_shards":64}"#];
    let both = bodies.map(|body| put(api.address, "/v1/posts/p/counters/likes", body));
    let mut answers: Vec<u16> =
        futures_util::future::join_all(both).await.iter().map(|answer| answer.status.as_u16()).collect();
    answers.sort_unstable();
    assert_eq!(answers, [201, 409]);
}

#[tokio::test]
async fn a_map_is_seen_in_no_list_and_by_no_count() {
    let api = writing().await;
    for name in ["likes", "retweets"] {
        api.tables.plant_row(&counter_id("p", name), "u").await;
        let created = put(api.address, &format!("/v1/posts/p/counters/{name}"), r#"{"number_of_shards":64}"#).await;
        assert_eq!(created.status, 201);
        let listed = get(api.address, &format!("/v1/posts/p/counters/{name}/members")).await.json();
        let members: Vec<&Value> = listed["members"].as_array().unwrap().iter().map(|it| &it["member"]).collect();
        assert_eq!(members, [&json!("u")]);
    }
    let likers = get(api.address, "/v1/posts/p/likers").await.json();
    assert_eq!((likers["likers"].as_array().unwrap().len(), &likers["likers"][0]["user_id"]), (1, &json!("u")));
    assert_eq!(
        get(api.address, "/v1/posts/p/likes/u").await.json()["liked"],
        json!(true),
        "and its row is where it was"
    );
    let scanned =
        tally_core::ports::Rows::scan(&dynamodb::Rows::new(api.tables.connection()), Segment { index: 0, of: 1 }, None)
            .await
            .unwrap();
    assert_eq!(scanned.items.len(), 2);
}

#[tokio::test]
async fn a_counters_shards_are_answered_on_demand() {
    let api = writing().await;
    let parts = [(0, 5), (3, 2)].map(|(k, part)| (Shard::new(k).unwrap(), part)).into();
    let counter = Counter { parts, ..counter(7, 9) };
    api.tables.plant(&post_id("p"), counter.clone()).await;
    api.tables.plant(&counter_id("p", "views"), counter.clone()).await;
    let target = "/v1/posts/p/counters/likes?detail=shards";
    let values = |n: u16| -> Vec<Value> {
        let value = |k| json!({"shard": k, "value": match k { 0 => 5, 3 => 2, _ => 0 }});
        (0..n).map(value).collect()
    };
    let answer = get(api.address, target).await;
    let mut expected = json!({"post_id": "p", "counter": "likes", "value": 7, "version": 9, "exact": true,
        "as_of": BEGAN.0, "fresh": true, "homes": [16], "newest": 16, "decided_by": "deployment", "corrections": 0,
        "updated_at": BEGAN.0, "shards": values(16)});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, expected.clone()));
    assert_eq!((answer.header("cache-control"), answer.header("etag")), (Some("no-store"), None));
    assert_eq!(put(api.address, "/v1/posts/p/counters/likes", r#"{"number_of_shards":64}"#).await.status, 201);
    expected["asked"] = json!(64);
    expected["decided_by"] = json!("number_of_shards");
    expected["homes"] = json!([16, 64]);
    expected["newest"] = json!(64);
    expected["shards"] = json!(values(64));
    assert_eq!(get(api.address, target).await.json(), expected);
    let maps = api.tables.maps();
    let standing = maps.map(&post_id("p")).await.unwrap().unwrap();
    let homes = Homes::of(count(16)).with(count(64));
    let grown =
        CounterMap::new(homes, count(64), Some(count(64)), DecidedBy::Heat, UnixMillis(standing.at.0 + 1)).unwrap();
    assert_eq!(maps.put_map(&post_id("p"), Some(&standing), &grown).await, Ok(true));
    let grown = get(api.address, target).await.json();
    assert_eq!(
        (&grown["homes"], &grown["newest"], &grown["decided_by"]),
        (&json!([16, 64]), &json!(64), &json!("heat"))
    );
    assert_eq!(grown["shards"], json!(values(64)));
    let again = put(api.address, "/v1/posts/p/counters/likes", r#"{"number_of_shards":64}"#).await;
    assert_eq!(shards(&again), (200, json!(64), json!("heat")), "also after heat has moved it");
    let sum = get(api.address, "/v1/posts/p/counters/views?detail=shards").await.json();
    let of_sum = json!({"post_id": "p", "counter": "views", "value": 7, "version": 9, "exact": true,
        "as_of": BEGAN.0, "fresh": true, "policy": "writer", "corrections": 0, "updated_at": BEGAN.0,
        "shards": values(16)});
    assert_eq!(sum, of_sum);
    let doubted = [Shard::new(3).unwrap()].into();
    let corrected = Counter { corrections: 2, gap: Some(Place::from_stored(8)), doubt: doubted, ..counter };
    api.tables.plant(&post_id("p"), corrected).await;
    let corrected = get(api.address, target).await.json();
    assert_eq!(
        json!([corrected["exact"], corrected["corrections"], corrected["gap"], corrected["doubt"]]),
        json!([false, 2, 8, [3]])
    );
    assert_eq!(get(api.address, "/v1/posts/p/counters/likes").await.json().get("homes"), None);
    for query in ["detail=rows", "x=1", "detail="] {
        let answer = get(api.address, &format!("/v1/posts/p/counters/likes?{query}")).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-query"), "{query}");
    }
}

#[tokio::test]
async fn creating_takes_the_administrators_token_or_where_there_is_none_the_writers() {
    let secret = |text: &str| Some(Secret::from(text.to_owned()));
    let (read, write, admin) = (secret("canary-read"), secret("canary-write"), secret("canary-admin"));
    let target = "/v1/posts/p/counters/likes";
    for (tokens, opens) in [
        (Tokens { read: read.clone(), write: write.clone(), admin: admin.clone() }, "canary-admin"),
        (Tokens { read, write, admin: None }, "canary-write"),
        (Tokens { admin, ..Tokens::default() }, "canary-admin"),
    ] {
        let open_writes = tokens.write.is_none();
        let api = Api::counting(Config { tokens, ..Config::default() }, WRITING).await;
        for token in ["canary-read", "canary-write", "canary-admin", "", "canary"] {
            let asked = request("PUT", target).header("content-type", "application/json");
            let asked = asked.header("authorization", format!("Bearer {token}"));
            let answer = send(api.address, asked.body(r#"{"number_of_shards":64}"#.into()).unwrap()).await;
            assert_eq!(answer.status.is_success(), token == opens, "{token} {opens}");
            assert!(answer.status.is_success() || answer.status == 401);
        }
        let like = ask(api.address, "PUT", "/v1/posts/p/likes/u").await;
        assert_eq!(like.status.as_u16(), if open_writes { 202 } else { 401 });
    }
    let open = writing().await;
    assert_eq!(put(open.address, target, r#"{"number_of_shards":64}"#).await.status, 201);
    let closed = Api::counting(Config::default(), With::default()).await;
    let answer = put(closed.address, target, r#"{"number_of_shards":64}"#).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (404, "writes-off"));
}

/// A member whose row is in another row key under 64 shards than under 16.
fn strayed() -> String {
    let differs = |member: &String| count(16).shard_of(member) != count(64).shard_of(member);
    (0..).map(|nth| format!("u-{nth}")).find(differs).expect("most are")
}

#[tokio::test]
async fn a_member_is_found_and_listed_under_every_home() {
    let api = writing().await;
    let member = strayed();
    assert_eq!(put(api.address, "/v1/posts/p/counters/retweets", r#"{"number_of_shards":64}"#).await.status, 201);
    let counter = counter_id("p", "retweets");
    let other = (0..).map(|nth| format!("o-{nth}")).find(|other| count(64).shard_of(other).index() >= 16).unwrap();
    api.tables.plant_row_under(&counter, &member, count(16)).await;
    api.tables.plant_row_under(&counter, &other, count(64)).await;
    for (found, expected) in [(member.as_str(), true), (other.as_str(), true), ("none", false)] {
        let target = format!("/v1/posts/p/counters/retweets/members/{found}");
        assert_eq!(get(api.address, &target).await.json()["present"], json!(expected), "{found}");
        let body = json!({"post_ids": ["p", "q"], "counters": ["likes", "retweets"], "member": found});
        let answer = post(api.address, "/v1/counters:batchGet", &body.to_string()).await.json();
        let mine: Vec<&Value> = answer["counts"].as_array().unwrap().iter().map(|it| &it["mine"]).collect();
        assert_eq!(mine, [&json!(false), &json!(expected), &json!(false), &json!(false)], "{found}: {answer}");
    }
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(api.address, &format!("/v1/posts/p/counters/retweets/members?limit=1{cursor}")).await.json();
        listed.extend(page["members"].as_array().unwrap().iter().map(|it| it["member"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    listed.sort_unstable();
    let mut expected = vec![member, other];
    expected.sort_unstable();
    assert_eq!(listed, expected);
}
