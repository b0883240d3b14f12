//! Tests the HTTP routes that accept writes (likes, members of sets, amounts of sums), by the events that they write to
//! Kafka and the answers that clients get.

use serde_json::{Value, json};
use tally_core::event::decode;
use tally_core::fault::Fault;
use tally_count_api::Config;
use tally_testkit::records;

use crate::harness::{Answer, Api, BEGAN, WRITING, ask, eventually, get, post, several};

/// Returns the values of a topic's records, and checks that all are events of the definitions.
pub(crate) async fn written(api: &Api, topic: &str) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (_, run) in records(&api.broker.reader("test", topic)).await.unwrap() {
        found.extend(run.iter().map(|record| {
            decode(record, &several().said_in(topic)).unwrap();
            let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
            (key, serde_json::from_slice(record.value.unwrap()).unwrap())
        }));
    }
    found
}

fn without_time(mut value: Value) -> Value {
    let time = value.as_object_mut().unwrap().remove("ts").unwrap();
    assert!(time.as_u64().unwrap() >= BEGAN.0);
    value
}

#[tokio::test]
async fn a_write_is_an_event_of_the_definition_and_is_answered_once_it_is_acknowledged() {
    let api = Api::start(Config::default(), WRITING).await;
    let (mut likes, mut posts) = (Vec::new(), Vec::new());
    for (method, subject, target, body, action, field, said) in [
        ("PUT", "posts", "likes/u%2F1", "", "like", "user_id", json!("u/1")),
        ("DELETE", "posts", "likes/u%2F1", "", "unlike", "user_id", json!("u/1")),
        ("PUT", "posts", "counters/likes/members/u", "", "like", "user_id", json!("u")),
        ("PUT", "posts", "counters/retweets/members/u%2F1", "", "retweet", "user_id", json!("u/1")),
        ("DELETE", "posts", "counters/retweets/members/u%2F1", "", "unretweet", "user_id", json!("u/1")),
        ("PUT", "posts", "counters/replies/members/r-7", "", "reply", "reply_id", json!("r-7")),
        ("PUT", "hashtags", "counters/posts/members/p-1", "", "tag", "post_id", json!("p-1")),
        ("POST", "posts", "counters/views/events", r#"{"action":"increment","n":25}"#, "view", "n", json!(25)),
        ("POST", "posts", "counters/views/events", r#"{"action":"increment"}"#, "view", "n", json!(1)),
        (
            "POST",
            "posts",
            "counters/score/events",
            r#"{"action":"decrement","n":1000000}"#,
            "down",
            "n",
            json!(1_000_000),
        ),
        ("POST", "hashtags", "counters/searches/events", r#"{"action":"increment","n":3}"#, "search", "n", json!(3)),
    ] {
        let path = format!("/v1/{subject}/s%231/{target}");
        let answer = match method {
            "POST" => post(api.address, &path, body).await,
            _ => ask(api.address, method, &path).await,
        };
        let subject = if subject == "posts" { "post_id" } else { "hashtag" };
        let mut answered = json!({subject: "s#1", "action": action});
        let mut sent = answered.clone();
        sent[field] = said.clone();
        match target.strip_prefix("counters/").and_then(|rest| rest.split('/').next()) {
            Some(counter) => {
                answered["counter"] = json!(counter);
                answered[if field == "n" { "n" } else { "member" }] = said;
            }
            None => answered[field] = said,
        }
        assert_eq!((answer.status.as_u16(), without_time(answer.json())), (202, answered), "{method} {path}");
        if action == "tag" { &mut posts } else { &mut likes }.push(("s#1".to_owned(), sent));
    }
    for (topic, expected) in [("likes", likes), ("posts", posts)] {
        let events = written(&api, topic).await.into_iter().map(|(key, event)| (key, without_time(event)));
        assert_eq!(events.collect::<Vec<_>>(), expected, "one partition, in order");
    }
}

#[tokio::test]
async fn an_amount_is_a_whole_number_within_its_bounds() {
    let api = Api::start(Config::default(), WRITING).await;
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
    let api = Api::start(Config::default(), WRITING).await;
    let said = |answer: Answer| (answer.status.as_u16(), answer.problem());
    for method in ["GET", "PUT", "DELETE"] {
        for (target, status, problem) in [
            ("posts/p/counters/views/members/u", 409, "wrong-kind"),
            ("hashtags/rust/counters/searches/members/p-1", 409, "wrong-kind"),
            ("posts/p/counters/posts/members/u", 404, "unknown-counter"),
            ("posts/p/counters/likes/members/%00", 400, "bad-id"),
        ] {
            let answer = ask(api.address, method, &format!("/v1/{target}")).await;
            assert_eq!(said(answer), (status, problem.to_owned()), "{method} {target}");
        }
    }
    assert_eq!(said(get(api.address, "/v1/posts/p/counters/views/members").await), (409, "wrong-kind".into()));
    let (increment, decrement) = (r#"{"action":"increment"}"#, r#"{"action":"decrement"}"#);
    for (target, body, status, problem) in [
        ("posts/p/counters/likes", increment, 409, "wrong-kind"),
        ("posts/p/counters/retweets", increment, 409, "wrong-kind"),
        ("hashtags/rust/counters/posts", increment, 409, "wrong-kind"),
        ("posts/p/counters/x", increment, 404, "unknown-counter"),
        ("posts/p/counters/views", decrement, 409, "no-action"),
    ] {
        let answer = post(api.address, &format!("/v1/{target}/events"), body).await;
        assert_eq!(said(answer), (status, problem.to_owned()), "{target}");
    }
    for target in ["posts/p/counters/replies/members/r", "hashtags/rust/counters/posts/members/p-1"] {
        let gone = ask(api.address, "DELETE", &format!("/v1/{target}")).await;
        assert_eq!(said(gone), (409, "no-action".into()), "{target}");
    }
    assert_eq!((written(&api, "likes").await, written(&api, "posts").await), (vec![], vec![]));
}

/// A write of each kind.
async fn each_kind(api: &Api) -> Vec<Answer> {
    let mut answers = Vec::new();
    for target in ["likes/u", "counters/retweets/members/u"] {
        answers.push(ask(api.address, "PUT", &format!("/v1/posts/p/{target}")).await);
    }
    let target = "/v1/posts/p/counters/views/events";
    answers.push(post(api.address, target, r#"{"action":"increment"}"#).await);
    answers
}

#[tokio::test]
async fn a_broker_that_is_away_or_refuses_the_event_is_named_and_the_client_waits() {
    let api = Api::start(Config::default(), WRITING).await;
    for (fault, problem) in [(Fault::Transient as fn(_) -> _, "broker-away"), (Fault::Poison, "event-refused")] {
        api.broker.refuse_writes("likes", Some(fault("canary".to_owned())));
        for answer in each_kind(&api).await {
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, problem));
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(!String::from_utf8_lossy(&answer.body).contains("canary"));
        }
    }
    api.broker.refuse_writes("likes", None);
    assert!(each_kind(&api).await.iter().all(|answer| answer.status == 202));
}

#[tokio::test]
async fn a_topic_that_is_not_the_deployments_any_more_gets_no_event_and_nothing_is_called_exact() {
    let api = Api::start(Config::default(), WRITING).await;
    api.plant("p", 3, 1).await;
    let readiness = api.running.host().readiness();
    let (checkpoints, is_exact) =
        (api.tables.checkpoints(), async || get(api.address, "/v1/posts/p/likes").await.json()["exact"] == true);
    let move_to = async |topic| checkpoints.move_usual(&checkpoints.usual().await.unwrap(), topic).await.unwrap();
    assert!(move_to("likes").await && is_exact().await);
    assert!(each_kind(&api).await.iter().all(|answer| answer.status == 202));
    assert!(move_to("moved").await);
    eventually("the process is not ready", async || !readiness.report().ready).await;
    let report = format!("{:?}", readiness.report());
    assert!(report.contains("--topic is `likes`") && report.contains("`moved`"), "{report}");
    let before = written(&api, "likes").await.len();
    for answer in each_kind(&api).await {
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "event-refused"));
        assert!(answer.json()["detail"].as_str().unwrap().contains("the event was not sent"));
    }
    assert_eq!(written(&api, "likes").await.len(), before);
    assert!(!is_exact().await);
    // A counter with a topic of its own is none of these.
    let target = "/v1/hashtags/rust/counters/posts/members/p-1";
    assert_eq!(ask(api.address, "PUT", target).await.status, 202);
    assert!(move_to("likes").await);
    eventually("the process is ready", async || readiness.report().ready).await;
    assert!(is_exact().await && each_kind(&api).await.iter().all(|answer| answer.status == 202));
}

#[tokio::test]
async fn a_client_past_its_rate_of_writes_is_told_when_to_come_back_and_nothing_of_it_is_written() {
    let config = Config { write_rate: 1, ..Config::default() };
    let api = Api::start(config, WRITING).await;
    let answers = each_kind(&api).await;
    assert_eq!(answers[0].status, 202);
    for answer in &answers[1..] {
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (429, "rate-limited"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(written(&api, "likes").await.len(), 1);
    assert_eq!(get(api.address, "/v1/posts/p/likes").await.status, 200, "reading has a rate of its own");
}
