//! Members of sets, put and listed, and amounts of sums, over HTTP.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tally_core::event::{Deed, decode};
use tally_core::ports::TopicReader;
use tally_count_api::{Config, Tokens};
use tally_service::Secret;

use crate::harness::{Api, BEGAN, With, ask, counter_id, get, post, several};

const WRITING: With = With { cache: false, writes: true };

/// The values of a topic's records, each with its key; all are events of the definitions.
pub(crate) async fn written(api: &Api, topic: &str) -> Vec<(String, Value)> {
    let reader = api.broker.reader("test", topic);
    let mut found = Vec::new();
    for (partition, log) in reader.logs().await.unwrap() {
        let records = reader.read(&partition, log.start, log.end).await.unwrap();
        found.extend(records.iter().map(|record| {
            decode(record, &several().said_in(topic)).unwrap();
            let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
            (key, serde_json::from_slice(record.value.unwrap()).unwrap())
        }));
    }
    found
}

fn without_time(mut value: Value, field: &str) -> Value {
    let time = value.as_object_mut().unwrap().remove(field).unwrap();
    assert!(time.as_u64().unwrap() >= BEGAN.0);
    value
}

#[tokio::test]
async fn a_member_is_put_and_taken_away_by_the_definitions_actions() {
    let api = Api::counting(Config::default(), WRITING).await;
    for (method, name, member, action) in [
        ("PUT", "retweets", "u%2F1", "retweet"),
        ("DELETE", "retweets", "u%2F1", "unretweet"),
        ("PUT", "likes", "u%2F1", "like"),
        ("PUT", "replies", "r-7", "reply"),
    ] {
        let answer = ask(api.address, method, &format!("/v1/posts/p%231/counters/{name}/members/{member}")).await;
        let member = member.replace("%2F", "/");
        let expected = json!({"post_id": "p#1", "counter": name, "action": action, "member": member});
        assert_eq!((answer.status.as_u16(), without_time(answer.json(), "ts")), (202, expected));
    }
    let events: Vec<_> =
        written(&api, "likes").await.into_iter().map(|(key, it)| (key, without_time(it, "ts"))).collect();
    let event = |field: &str, member: &str, action: &str| {
        ("p#1".to_owned(), json!({"post_id": "p#1", field: member, "action": action}))
    };
    let expected = [
        event("user_id", "u/1", "retweet"),
        event("user_id", "u/1", "unretweet"),
        event("user_id", "u/1", "like"),
        event("reply_id", "r-7", "reply"),
    ];
    assert_eq!(events, expected, "one partition, in order");
}

#[tokio::test]
async fn an_amount_is_added_and_taken_off_by_events_that_the_consumer_reads() {
    let api = Api::counting(Config::default(), WRITING).await;
    for (name, body, action, n) in [
        ("views", json!({"action": "increment", "n": 25}), "view", 25),
        ("views", json!({"action": "increment"}), "view", 1),
        ("score", json!({"action": "decrement", "n": 1_000_000}), "down", 1_000_000),
    ] {
        let answer = post(api.address, &format!("/v1/posts/p/counters/{name}/events"), &body.to_string()).await;
        let expected = json!({"post_id": "p", "counter": name, "action": action, "n": n});
        assert_eq!((answer.status.as_u16(), without_time(answer.json(), "ts")), (202, expected));
    }
    let reader = api.broker.reader("test", "likes");
    let mut deeds = Vec::new();
    for (partition, log) in reader.logs().await.unwrap() {
        let records = reader.read(&partition, log.start, log.end).await.unwrap();
        deeds.extend(records.iter().map(|record| {
            let event = decode(record, &several().said_in("likes")).unwrap();
            let Deed::Amount(n) = event.deed else { panic!("{event:?}") };
            (event.counter.to_string(), event.subject().to_owned(), n)
        }));
    }
    let of = |name: &str, n| (name.to_owned(), "p".to_owned(), n);
    assert_eq!(deeds, [of("views", 25), of("views", 1), of("score", -1_000_000)]);
}

#[tokio::test]
async fn an_amount_is_a_whole_number_within_its_bounds() {
    let api = Api::counting(Config::default(), WRITING).await;
    for (body, parameter) in [
        (r#"{"action":"increment","n":0}"#, "n"),
        (r#"{"action":"increment","n":-1}"#, "n"),
        (r#"{"action":"increment","n":1.5}"#, "n"),
        (r#"{"action":"increment","n":1000001}"#, "n"),
        (r#"{"action":"increment","n":5000000000}"#, "n"),
        (r#"{"action":"increment","n":"1"}"#, "n"),
        (r#"{"action":"increment","n":null}"#, "n"),
        (r#"{"action":"view"}"#, "action"),
        (r#"{"n":1}"#, "action"),
        (r#"{"action":"increment","x":1}"#, "x"),
    ] {
        let answer = post(api.address, "/v1/posts/p/counters/score/events", body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-body"), "{body}");
        assert_eq!(answer.json()["parameter"], parameter, "{body}");
    }
    assert_eq!(written(&api, "likes").await, []);
}

#[tokio::test]
async fn a_route_of_the_other_kind_and_an_action_that_is_not_defined_are_conflicts() {
    let api = Api::counting(Config::default(), WRITING).await;
    let said = |answer: crate::harness::Answer| (answer.status.as_u16(), answer.problem());
    for method in ["GET", "PUT", "DELETE"] {
        let answer = ask(api.address, method, "/v1/posts/p/counters/views/members/u").await;
        assert_eq!(said(answer), (409, "wrong-kind".into()), "{method}");
        let answer = ask(api.address, method, "/v1/posts/p/counters/posts/members/u").await;
        assert_eq!(said(answer), (404, "unknown-counter".into()), "{method}");
        let answer = ask(api.address, method, "/v1/posts/p/counters/likes/members/%00").await;
        assert_eq!(said(answer), (400, "bad-id".into()), "{method}");
    }
    assert_eq!(said(get(api.address, "/v1/posts/p/counters/views/members").await), (409, "wrong-kind".into()));
    let increment = r#"{"action":"increment"}"#;
    for name in ["likes", "retweets"] {
        let answer = post(api.address, &format!("/v1/posts/p/counters/{name}/events"), increment).await;
        assert_eq!(said(answer), (409, "wrong-kind".into()));
    }
    assert_eq!(
        said(post(api.address, "/v1/posts/p/counters/x/events", increment).await),
        (404, "unknown-counter".into())
    );
    let decrement = post(api.address, "/v1/posts/p/counters/views/events", r#"{"action":"decrement"}"#).await;
    assert_eq!(said(decrement), (409, "no-action".into()));
    let gone = ask(api.address, "DELETE", "/v1/posts/p/counters/replies/members/r").await;
    assert_eq!(said(gone), (409, "no-action".into()));
    assert_eq!(written(&api, "likes").await, []);
}

#[tokio::test]
async fn members_are_read_from_their_rows_and_listed_page_by_page() {
    let api = Api::counting(Config::default(), WRITING).await;
    let id = counter_id("p#1", "retweets");
    let users: BTreeSet<String> = (0..57).map(|n| format!("u-{n}/é")).collect();
    for user in &users {
        api.tables.plant_row(&id, user).await;
    }
    api.tables.plant_row(&counter_id("p#1", "likes"), "other").await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let target = format!("/v1/posts/p%231/counters/retweets/members?limit=10{cursor}");
        let page = get(api.address, &target).await.json();
        assert_eq!((&page["post_id"], &page["counter"]), (&json!("p#1"), &json!("retweets")));
        let members = page["members"].as_array().unwrap();
        assert!(members.len() <= 10 && seen.len() < 100);
        seen.extend(members.iter().map(|it| it["member"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((seen.len(), seen.into_iter().collect()), (users.len(), users));
    let state = async |member: &str| {
        let answer = get(api.address, &format!("/v1/posts/p%231/counters/retweets/members/{member}")).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        answer.json()
    };
    assert_eq!(state("u-1%2F%C3%A9").await["present"], json!(true));
    assert!(state("u-1%2F%C3%A9").await["since"].is_u64());
    assert_eq!(state("other").await, json!({"present": false}));
}

#[tokio::test]
async fn writes_take_the_token_and_the_rate_of_writes_and_are_off_without_brokers() {
    let closed = Api::counting(Config::default(), With::default()).await;
    let increment = r#"{"action":"increment"}"#;
    let targets = ["/v1/posts/p/counters/likes/members/u", "/v1/posts/p/counters/views/events"];
    for (method, target) in [("PUT", targets[0]), ("DELETE", targets[0]), ("POST", targets[1])] {
        let answer = ask(closed.address, method, target).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (404, "writes-off"), "{method} {target}");
    }
    let tokens = Tokens { write: Some(Secret::from("canary-write".to_owned())), ..Tokens::default() };
    let api = Api::counting(Config { tokens, ..Config::default() }, WRITING).await;
    assert_eq!(ask(api.address, "PUT", targets[0]).await.status, 401);
    assert_eq!(post(api.address, targets[1], increment).await.status, 401);
    assert_eq!(get(api.address, targets[0]).await.status, 200);
    let config = Config { write_rate: std::num::NonZeroU32::new(1), ..Config::default() };
    let api = Api::counting(config, WRITING).await;
    assert_eq!(post(api.address, targets[1], increment).await.status, 202);
    assert_eq!(post(api.address, targets[1], increment).await.problem(), "rate-limited");
    let api = Api::counting(Config::default(), WRITING).await;
    api.broker.refuse_writes("likes", Some(tally_core::fault::Fault::Transient("canary".to_owned())));
    let answer = post(api.address, targets[1], increment).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "broker-away"));
}
