//! Each route, as it is documented.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;
use tally_core::audit::QueueReason;
use tally_core::fold::Counter;
use tally_core::ids::Shard;
use tally_core::ports::TopicReader;
use tally_count_api::{Config, Tokens};
use tally_service::Secret;
use tokio::time::sleep;

use crate::harness::{Api, BEGAN, With, ask, counter, eventually, get, post, post_id, request, send, standing};

const CACHED: With = With { cache: true, writes: false };
const WRITING: With = With { cache: false, writes: true };

fn uncached() -> Config {
    Config { local_ttl: Duration::ZERO, ..Config::default() }
}

#[tokio::test]
async fn a_count_says_how_many_and_how_far_to_trust_it() {
    let api = Api::start(Config::default(), CACHED).await;
    api.plant("p-1", 42, 57).await;
    let answer = get(api.address, "/v1/posts/p-1/likes").await;
    let expected =
        json!({"post_id": "p-1", "likes": 42, "version": 57, "exact": true, "as_of": BEGAN.0, "fresh": true});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, expected));
    assert_eq!(answer.header("etag"), Some("W/\"57.1\""));
    assert_eq!(answer.header("cache-control"), Some("public, max-age=1"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("x-request-id").is_some());
}

#[tokio::test]
async fn a_post_without_likes_has_none() {
    let api = Api::start(Config::default(), CACHED).await;
    let answer = get(api.address, "/v1/posts/unliked/likes").await;
    let expected =
        json!({"post_id": "unliked", "likes": 0, "version": 0, "exact": true, "as_of": BEGAN.0, "fresh": true});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, expected));
    sleep(Duration::from_millis(50)).await;
    let held = api.tables.held(&post_id("unliked")).await;
    assert_eq!(held, None, "ids that no post has never fill the shared cache");
}

#[tokio::test]
async fn a_known_number_is_not_sent_again_until_it_changes() {
    let api = Api::start(uncached(), With::default()).await;
    api.plant("p", 1, 7).await;
    let known = |tag: &'static str| async move {
        let request = request("GET", "/v1/posts/p/likes").header("if-none-match", tag);
        send(api.address, request.body(Full::default()).unwrap()).await
    };
    let answer = known("W/\"7.1\"").await;
    assert_eq!((answer.status.as_u16(), answer.body.len(), answer.header("etag")), (304, 0, Some("W/\"7.1\"")));
    assert_eq!(known("W/\"6.1\"").await.status, 200);
    api.plant("p", 2, 8).await;
    assert_eq!(known("W/\"7.1\"").await.status, 200);
}

#[tokio::test]
async fn an_id_is_decoded_once_whatever_is_in_it() {
    let api = Api::start(uncached(), With::default()).await;
    let ids = [
        ("a#3", "a%233"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        ("😀", "%F0%9F%98%80"),
        ("..", "%2e%2e"),
        ("a b+c", "a%20b+c"),
        ("likes", "likes"),
        ("x:y", "x:y"),
        ("?", "%3F"),
    ];
    for (likes, (id, escaped)) in (1i64..).zip(ids) {
        api.plant(id, likes, 1).await;
        let answer = get(api.address, &format!("/v1/posts/{escaped}/likes")).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["post_id"]), (200, &json!(id)), "{escaped}");
        assert_eq!(answer.json()["likes"], json!(likes), "{escaped}");
        api.tables.plant_row(&post_id(id), id).await;
        let answer = get(api.address, &format!("/v1/posts/{escaped}/likes/{escaped}")).await;
        assert_eq!(answer.json()["liked"], json!(true), "{escaped}");
    }
}

#[tokio::test]
async fn what_is_no_id_is_refused_before_anything_is_read() {
    let api = Api::start(uncached(), With::default()).await;
    let bad = [
        ("%00".to_owned(), "bad-id"),
        ("%0d%0a".to_owned(), "bad-id"),
        ("%C2%85".to_owned(), "bad-id"),
        ("a".repeat(257), "bad-id"),
        ("%ff".to_owned(), "bad-path"),
        ("%zz".to_owned(), "bad-path"),
        ("a%2".to_owned(), "bad-path"),
    ];
    for (id, problem) in bad {
        let target = format!("/v1/posts/{id}/likes");
        for target in
            [target.clone(), format!("{target}:stream"), format!("{target}/u"), format!("/v1/posts/p/likes/{id}")]
        {
            let answer = get(api.address, &target).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, problem), "{target}");
        }
    }
    assert_eq!(api.tables.reads(), 0);
    let long = get(api.address, &format!("/v1/posts/{}/likes", "a".repeat(5000))).await;
    assert_eq!((long.status.as_u16(), long.problem().as_str()), (414, "path-too-long"));
    assert_eq!(get(api.address, &format!("/v1/posts/{}/likes", "%61".repeat(256))).await.status, 200);
}

#[tokio::test]
async fn a_batch_answers_in_the_order_asked_with_one_read_of_each_layer() {
    let api = Api::start(Config::default(), CACHED).await;
    for n in 0..100u64 {
        api.plant(&format!("p{n}"), i64::try_from(n).unwrap(), n + 1).await;
    }
    let ids: Vec<String> = (0..100).rev().map(|n| format!("p{n}")).collect();
    let answer = post(api.address, "/v1/likes:batchGet", &json!({ "post_ids": ids }).to_string()).await;
    let answered = answer.json();
    let counts = answered["counts"].as_array().unwrap();
    let pairs: Vec<_> =
        counts.iter().map(|count| (count["post_id"].as_str().unwrap(), count["likes"].as_u64())).collect();
    let expected: Vec<_> = ids.iter().map(String::as_str).zip((0..100).rev().map(Some)).collect();
    assert_eq!(pairs, expected);
    assert_eq!(api.tables.reads(), 1);
    eventually("what was read is in the cache", async || {
        api.tables.held(&post_id("p7")).await.is_some_and(|value| value.likes == 7)
    })
    .await;
}

#[tokio::test]
async fn a_batch_may_be_empty_and_repeat_itself_but_not_be_malformed() {
    let api = Api::start(uncached(), With::default()).await;
    api.plant("a", 3, 1).await;
    let ask = async |body: &str| post(api.address, "/v1/likes:batchGet", body).await;
    assert_eq!(ask(r#"{"post_ids":[]}"#).await.json(), json!({"counts": []}));
    let twice = ask(r#"{"post_ids":["a","b","a"]}"#).await.json();
    let likes: Vec<_> = twice["counts"].as_array().unwrap().iter().map(|count| count["likes"].as_u64()).collect();
    assert_eq!(likes, [Some(3), Some(0), Some(3)]);
    let many = json!({ "post_ids": vec!["p"; 101] }).to_string();
    let (none, ids) = (json!([null, null]), json!(["post_ids", null]));
    let refused = [
        ("", "bad-body", &none),
        ("null", "bad-body", &none),
        ("[]", "bad-body", &none),
        ("{}", "bad-body", &ids),
        (r#"{"post_ids":"a"}"#, "bad-body", &ids),
        (r#"{"post_ids":["a",1]}"#, "bad-body", &json!(["post_ids", 1])),
        (r#"{"post_ids":["a"],"x":1}"#, "bad-body", &json!(["x", null])),
        (r#"{"post_ids":["a"]} x"#, "bad-body", &none),
        (many.as_str(), "bad-body", &ids),
        (r#"{"post_ids":["a","b",""]}"#, "bad-id", &json!(["post_ids", 2])),
        (r#"{"post_ids":["\u0001"]}"#, "bad-id", &json!(["post_ids", 0])),
    ];
    for (body, problem, parameter) in refused {
        let answer = ask(body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, problem), "{body}");
        let said = answer.json();
        assert_eq!(&json!([said.get("parameter"), said.get("index")]), parameter, "{body}: {said}");
    }
    let large = format!(r#"{{"post_ids":["{}"]}}"#, "a".repeat(300_000));
    let answer = ask(&large).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (413, "body-too-large"));
    let text = send(api.address, request("POST", "/v1/likes:batchGet").body(Full::from("{}")).unwrap()).await;
    assert_eq!((text.status.as_u16(), text.problem().as_str()), (415, "not-json"));
}

#[tokio::test]
async fn a_counter_that_cannot_be_read_fails_its_own_answer_alone() {
    let api = Api::start(uncached(), CACHED).await;
    api.plant("a", 3, 1).await;
    api.tables.damage(&post_id("damaged")).await;
    let answer = post(api.address, "/v1/likes:batchGet", r#"{"post_ids":["damaged","a","b"]}"#).await;
    let (status, body) = (answer.status.as_u16(), answer.json());
    assert_eq!((status, &body["unreadable"]), (200, &json!(["damaged"])));
    let counts = body["counts"].as_array().unwrap();
    let pairs: Vec<_> = counts.iter().map(|count| (&count["post_id"], &count["likes"])).collect();
    assert_eq!(pairs, [(&json!("a"), &json!(3)), (&json!("b"), &json!(0))]);
    let answer = get(api.address, "/v1/posts/damaged/likes").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (500, "internal"));
    assert!(!String::from_utf8_lossy(&answer.body).contains("canary"));
}

#[tokio::test]
async fn a_negative_total_is_shown_as_none_and_queued_for_a_recount() {
    let api = Api::start(uncached(), CACHED).await;
    api.plant("p", -3, 9).await;
    let answer = get(api.address, "/v1/posts/p/likes").await.json();
    assert_eq!((&answer["likes"], &answer["exact"]), (&json!(0), &json!(false)));
    eventually("it is queued", || async {
        let queued = api.tables.recounts().queued(None).await.unwrap().items;
        queued.iter().any(|queued| queued.key.to_string() == "p#0" && queued.reason == QueueReason::Negative)
    })
    .await;
}

#[tokio::test]
async fn a_total_in_doubt_is_not_exact_and_queued_for_a_recount() {
    let api = Api::start(uncached(), CACHED).await;
    let doubted = Counter { doubt: [Shard::new(2).unwrap()].into(), ..counter(3, 9) };
    api.tables.plant(&post_id("p"), doubted).await;
    let answer = get(api.address, "/v1/posts/p/likes").await.json();
    assert_eq!((&answer["likes"], &answer["exact"]), (&json!(3), &json!(false)));
    eventually("it is queued", || async {
        let queued = api.tables.recounts().queued(None).await.unwrap().items;
        queued.iter().any(|queued| queued.key.to_string() == "p#2" && queued.reason == QueueReason::Doubt)
    })
    .await;
}

#[tokio::test]
async fn while_a_loss_is_open_no_answer_is_exact_also_not_one_that_was_cached() {
    let api = Api::start(uncached(), CACHED).await;
    api.plant("p", 1, 1).await;
    let exact = async || get(api.address, "/v1/posts/p/likes").await.json()["exact"] == json!(true);
    assert!(exact().await);
    eventually("it is cached", async || api.tables.held(&post_id("p")).await.is_some()).await;
    api.tables.stand(&standing(2_000, BEGAN, Some(1_500), &[7])).await;
    eventually("the loss is seen", async || !exact().await).await;
    api.tables.stand(&standing(3_000, BEGAN, Some(1_500), &[])).await;
    eventually("its end is seen", exact).await;
}

#[tokio::test]
async fn as_of_is_what_was_known_before_the_value_was_read() {
    let api = Api::start(uncached(), CACHED).await;
    api.plant("p", 1, 1).await;
    let later = BEGAN.plus(Duration::from_millis(100));
    let as_of = async |post: &str| get(api.address, &format!("/v1/posts/{post}/likes")).await.json()["as_of"].as_u64();
    assert_eq!(as_of("p").await, Some(BEGAN.0));
    eventually("it is cached", async || api.tables.held(&post_id("p")).await.is_some()).await;
    api.tables.stand(&standing(2_000, later, None, &[])).await;
    eventually("the standing moves", async || as_of("other").await == Some(later.0)).await;
    assert_eq!(as_of("p").await, Some(BEGAN.0), "a cached value promises what it held when it was read");
}

#[tokio::test]
async fn likers_are_paged_over_all_shards_each_exactly_once() {
    let api = Api::start(Config::default(), With::default()).await;
    let post = post_id("p#1");
    let users: std::collections::BTreeSet<String> = (0..237).map(|n| format!("u-{n}/é")).collect();
    for user in &users {
        api.tables.plant_row(&post, user).await;
    }
    for limit in [1usize, 7, 50, 100] {
        let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = get(api.address, &format!("/v1/posts/p%231/likers?limit={limit}{cursor}")).await.json();
            let likers = page["likers"].as_array().unwrap();
            assert!(likers.len() <= limit && page["post_id"] == json!("p#1"));
            seen.extend(likers.iter().map(|liker| liker["user_id"].as_str().unwrap().to_owned()));
            pages += 1;
            assert!(pages < 500, "paging ends");
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), users.len(), "limit {limit}");
        assert_eq!(seen.into_iter().collect::<std::collections::BTreeSet<_>>(), users, "limit {limit}");
    }
    assert_eq!(get(api.address, "/v1/posts/unliked/likers").await.json(), json!({"post_id": "unliked", "likers": []}));
}

#[tokio::test]
async fn a_page_is_asked_for_by_known_parameters_alone() {
    let api = Api::start(Config::default(), With::default()).await;
    for query in ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "x=1", "limit=1&limit=2"] {
        let answer = get(api.address, &format!("/v1/posts/p/likers?{query}")).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-query"), "{query}");
        assert_eq!(answer.json()["parameter"], query[..query.find('=').unwrap()], "{query}");
    }
    for cursor in ["x", "", "MS8wLw%3D%3D", "🙂", "MS85OTkv"] {
        let answer = get(api.address, &format!("/v1/posts/p/likers?cursor={}", escape(cursor))).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-cursor"), "{cursor}");
    }
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn a_write_is_an_event_and_is_answered_once_it_is_acknowledged() {
    let api = Api::start(Config::default(), WRITING).await;
    for (method, action) in [("PUT", "like"), ("DELETE", "unlike")] {
        let answer = ask(api.address, method, "/v1/posts/p%231/likes/u%2F1").await;
        let (status, body) = (answer.status.as_u16(), answer.json());
        assert_eq!((status, &body["action"], &body["user_id"]), (202, &json!(action), &json!("u/1")));
    }
    let reader = api.broker.reader("test", "likes");
    let mut values = Vec::new();
    for (partition, log) in reader.logs().await.unwrap() {
        let records = reader.read(&partition, log.start, log.end).await.unwrap();
        values.extend(records.iter().map(|record| {
            assert_eq!(record.key, Some(&b"p#1"[..]));
            serde_json::from_slice::<serde_json::Value>(record.value.unwrap()).unwrap()
        }));
    }
    let actions: Vec<_> = values.iter().map(|value| value["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["like", "unlike"], "one partition, in order");
    assert!(values[0]["ts"].as_u64().unwrap() >= BEGAN.0);
}

#[tokio::test]
async fn without_brokers_there_are_no_writes_and_a_broker_that_is_away_is_waited_for_by_the_client() {
    let closed = Api::start(Config::default(), With::default()).await;
    for method in ["PUT", "DELETE"] {
        let answer = ask(closed.address, method, "/v1/posts/p/likes/u").await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (404, "writes-off"));
    }
    let api = Api::start(Config::default(), WRITING).await;
    api.broker.refuse_writes("likes", Some(tally_core::fault::Fault::Transient("canary".to_owned())));
    let answer = ask(api.address, "PUT", "/v1/posts/p/likes/u").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "broker-away"));
    assert!(answer.header("retry-after").is_some() && !answer.body.windows(6).any(|part| part == b"canary"));
    api.broker.refuse_writes("likes", None);
    assert_eq!(ask(api.address, "PUT", "/v1/posts/p/likes/u").await.status, 202);
}

#[tokio::test]
async fn a_client_past_its_rate_of_writes_is_told_when_to_come_back() {
    let config = Config { write_rate: std::num::NonZeroU32::new(1), ..Config::default() };
    let api = Api::start(config, WRITING).await;
    assert_eq!(ask(api.address, "PUT", "/v1/posts/p/likes/u").await.status, 202);
    let answer = ask(api.address, "DELETE", "/v1/posts/p/likes/u").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (429, "rate-limited"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(get(api.address, "/v1/posts/p/likes").await.status, 200, "reading has a rate of its own");
}

#[tokio::test]
async fn every_read_counts_against_a_clients_rate_also_from_memory_and_of_the_page() {
    for targets in [["/v1/posts/p/likes"; 3], ["/docs/", "/openapi.json", "/docs/swagger-ui.css"]] {
        let config =
            Config { read_rate: std::num::NonZeroU32::new(2), local_ttl: Duration::from_secs(10), ..uncached() };
        let api = Api::start(config, With::default()).await;
        let mut statuses = Vec::new();
        for target in targets {
            statuses.push(get(api.address, target).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 429], "{targets:?}");
    }
}

#[tokio::test]
async fn a_count_from_memory_is_the_same_answer_as_one_that_was_read() {
    let cors = Some(tower_http::cors::AllowOrigin::any());
    let config = Config { local_ttl: Duration::from_secs(10), cors, ..uncached() };
    let api = Api::standing_still(config).await;
    api.plant("p", 42, 57).await;
    let ask = async |headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(request("GET", "/v1/posts/p/likes"), |request, (name, value)| request.header(*name, *value));
        let mut answer = send(api.address, request.header("x-request-id", "same").body(Full::default()).unwrap()).await;
        answer.headers.remove("date");
        (answer.status, answer.headers, answer.body)
    };
    let first = ask(&[]).await;
    let reads = api.tables.reads();
    for _ in 0..3 {
        assert_eq!(ask(&[]).await, first);
    }
    assert_eq!(ask(&[("origin", "https://a.example")]).await.2, first.2);
    let known = ask(&[("if-none-match", "W/\"57.1\"")]).await;
    assert_eq!((known.0.as_u16(), known.1.get("etag"), known.2.len()), (304, first.1.get("etag"), 0));
    assert_eq!(api.tables.reads(), reads);
    api.tables.stand(&standing(2_000, BEGAN, Some(1_500), &[7])).await;
    eventually("a loss is seen in what is in memory", async || {
        get(api.address, "/v1/posts/p/likes").await.json()["exact"] == json!(false)
    })
    .await;
}

#[tokio::test]
async fn a_token_is_asked_for_also_where_the_count_is_in_memory() {
    let tokens = Tokens { read: Some(Secret::from("canary-read".to_owned())), ..Tokens::default() };
    let api = Api::start(Config { tokens, local_ttl: Duration::from_secs(10), ..uncached() }, With::default()).await;
    let ask = async |token: &'static str| {
        let request = request("GET", "/v1/posts/p/likes").header("authorization", token);
        send(api.address, request.body(Full::<Bytes>::default()).unwrap()).await.status.as_u16()
    };
    for _ in 0..3 {
        assert_eq!((ask("Bearer canary-read").await, ask("Bearer canary-rea").await), (200, 401));
    }
}

#[tokio::test]
async fn reading_and_writing_take_a_token_each() {
    let secret = |text: &str| Some(Secret::from(text.to_owned()));
    let tokens = Tokens { read: secret("canary-read"), write: secret("canary-write"), admin: None };
    let api = Api::start(Config { tokens, ..Config::default() }, WRITING).await;
    let ask = async |method: &str, token: Option<&str>| {
        let mut request = request(method, "/v1/posts/p/likes/u");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        send(api.address, request.body(Full::<Bytes>::default()).unwrap()).await
    };
    for (method, token, status) in [
        ("GET", None, 401),
        ("GET", Some("canary-write"), 401),
        ("GET", Some("canary-read"), 200),
        ("PUT", None, 401),
        ("PUT", Some("canary-read"), 401),
        ("PUT", Some("canary-write"), 202),
        ("DELETE", Some("x"), 401),
    ] {
        let answer = ask(method, token).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {token:?}");
        assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Bearer"));
    }
    assert_eq!(get(api.address, "/openapi.json").await.status, 200, "the document is open to all clients");
    let answer = ask("GET", Some("canary-read")).await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn a_path_without_a_route_is_a_problem_too() {
    let api = Api::start(Config::default(), WRITING).await;
    for target in ["/", "/v1", "/v1/posts", "/v1/posts/p", "/v1/likes", "/metrics", "/readyz", "/v1/posts/p/likes/"] {
        let answer = get(api.address, target).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (404, "no-route"), "{target}");
    }
    for (method, target) in
        [("POST", "/v1/posts/p/likes"), ("PATCH", "/v1/posts/p/likes/u"), ("GET", "/v1/likes:batchGet")]
    {
        let answer = ask(api.address, method, target).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (405, "no-method"), "{method} {target}");
        assert!(answer.header("allow").is_some(), "{method} {target}");
    }
    let body = send(api.address, request("GET", "/v1/posts/p/likes").body(Full::from("x")).unwrap()).await;
    assert_eq!((body.status.as_u16(), body.problem().as_str()), (400, "unexpected-body"));
    assert_eq!(ask(api.address, "HEAD", "/v1/posts/p/likes").await.status, 200);
}
