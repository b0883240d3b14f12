//! Tests what all routes of the HTTP API promise: how ids in paths are decoded and refused, tokens, rates of clients,
//! and problems for what is not there.

use std::time::Duration;

use http_body_util::Full;
use serde_json::json;
use tally_count_api::Config;
use tally_service::Clock;

use crate::harness::{
    Api, BEGAN, WRITING, With, ask, eventually, get, post_id, request, send, standing, token, uncached,
};

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
        for path in ["likes", "likes:stream", "likes/u", "likers", "counters", "counters/likes", "counters:stream"] {
            let target = format!("/v1/posts/{id}/{path}");
            let answer = get(api.address, &target).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, problem), "{target}");
        }
        for (path, parameter) in [("likes", "user_id"), ("counters/likes/members", "member")] {
            let answer = get(api.address, &format!("/v1/posts/p/{path}/{id}")).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, problem), "{path} {id}");
            let named = (problem == "bad-id").then_some(parameter);
            assert_eq!(answer.json()["parameter"].as_str(), named, "{path} {id}");
        }
    }
    assert_eq!(api.tables.reads(), 0);
    let long = get(api.address, &format!("/v1/posts/{}/likes", "a".repeat(5000))).await;
    assert_eq!((long.status.as_u16(), long.problem().as_str()), (414, "path-too-long"));
    assert_eq!(get(api.address, &format!("/v1/posts/{}/likes", "%61".repeat(256))).await.status, 200);
}

#[tokio::test]
async fn every_read_counts_against_a_clients_rate_also_from_memory_and_of_the_page() {
    for targets in [["/v1/posts/p/likes"; 3], ["/docs/", "/openapi.json", "/docs/swagger-ui.css"]] {
        let config = Config { read_rate: 2, local_ttl: Duration::from_secs(10), ..uncached() };
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
    let config = Config { local_ttl: Duration::from_secs(10), cors_origins: vec!["*".to_owned()], ..uncached() };
    let api = Api::at(Clock::standing_still(BEGAN), config, With::default(), |app| app).await;
    api.plant("p", 42, 57).await;
    let ask = async |headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(request("GET", "/v1/posts/p/likes"), |request, (name, value)| request.header(*name, *value));
        let mut answer = send(api.address, request.header("x-request-id", "same").body(Full::default()).unwrap()).await;
        answer.headers.remove("date");
        answer.headers.remove("server-timing");
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
async fn reading_writing_and_administration_take_a_token_each_and_the_last_takes_the_writers_where_it_has_none() {
    let [read, write, admin] = ["canary-read", "canary-write", "canary-admin"].map(Some);
    let (like, member) = ("/v1/posts/p/likes/u", "/v1/posts/p/counters/retweets/members/u");
    let (event, shards) = (r#"{"action":"increment"}"#, r#"{"number_of_shards":64}"#);
    for tokens in [[read, write, admin], [read, write, None], [None, None, admin], [None; 3]] {
        let [read_token, write_token, admin_token] = tokens.map(|given| token(given?));
        // A count that is in memory takes a token, too.
        let config = Config { local_ttl: Duration::from_secs(10), ..Config::default() };
        let api = Api::start(Config { read_token, write_token, admin_token, ..config }, WRITING).await;
        let [reads, writes, administers] = tokens;
        for (method, target, body, opens) in [
            ("GET", "/v1/posts/p/likes", "", reads),
            ("GET", like, "", reads),
            ("GET", member, "", reads),
            ("PUT", like, "", writes),
            ("DELETE", member, "", writes),
            ("POST", "/v1/posts/p/counters/views/events", event, writes),
            ("PUT", "/v1/posts/p/counters/likes", shards, administers.or(writes)),
        ] {
            for given in [read, write, admin, Some(""), Some("canary"), None] {
                let asked = request(method, target).header("content-type", "application/json");
                let bearer = given.map(|given| format!("Bearer {given}"));
                let asked = bearer.into_iter().fold(asked, |asked, bearer| asked.header("authorization", bearer));
                let answer = send(api.address, asked.body(Full::from(body)).unwrap()).await;
                let is_open = opens.is_none() || opens == given;
                assert_eq!(
                    (answer.status.is_success(), answer.status == 401),
                    (is_open, !is_open),
                    "{method} {target}"
                );
                assert_eq!(answer.header("www-authenticate"), (!is_open).then_some("Bearer"));
            }
        }
        assert_eq!(get(api.address, "/openapi.json").await.status, 200, "the document is open to all clients");
    }
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
    assert_eq!(ask(api.address, "HEAD", "/v1/posts/p/likes").await.status, 200);
}
