//! Counters of hashtags: the routes of posts under another path.

use serde_json::{Value, json};
use tally_core::event::{Deed, decode};
use tally_core::ports::TopicReader;
use tally_count_api::Config;

use crate::harness::{Api, BEGAN, With, ask, counter_id, get, post, several};

const WRITING: With = With { cache: false, writes: true };

#[tokio::test]
async fn counters_of_a_hashtag_are_read_as_those_of_a_post() {
    let api = Api::counting(Config::default(), With::default()).await;
    api.plant_counter("c#/é", "posts", 5, 6).await;
    let hashtag = "/v1/hashtags/c%23%2F%C3%A9/counters";
    let answer = get(api.address, &format!("{hashtag}/posts")).await;
    let expected = json!({"hashtag": "c#/é", "counter": "posts", "value": 5, "version": 6, "exact": true, "as_of": BEGAN.0, "fresh": true});
    assert_eq!((answer.json(), answer.header("etag")), (expected, Some("W/\"6.1\"")));
    let of = |value: u64, version: u64| json!({"value": value, "version": version, "exact": true, "as_of": BEGAN.0, "fresh": true});
    let all = get(api.address, hashtag).await.json();
    assert_eq!(all, json!({"hashtag": "c#/é", "counters": {"posts": of(5, 6), "searches": of(0, 0)}}));
    for name in ["likes", "views", "nothing"] {
        let answer = get(api.address, &format!("{hashtag}/{name}")).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (404, "unknown-counter"), "{name}");
    }
    let answer = get(api.address, "/v1/hashtags/%00/counters/posts").await;
    assert_eq!((answer.problem().as_str(), &answer.json()["parameter"]), ("bad-id", &json!("hashtag")));
}

#[tokio::test]
async fn counters_of_a_hashtag_are_written_to_their_own_topics() {
    let api = Api::counting(Config::default(), WRITING).await;
    let put = ask(api.address, "PUT", "/v1/hashtags/rust/counters/posts/members/p-1").await;
    let mut answered = put.json();
    answered.as_object_mut().unwrap().remove("ts");
    let expected = json!({"hashtag": "rust", "counter": "posts", "action": "tag", "member": "p-1"});
    assert_eq!((put.status.as_u16(), answered), (202, expected));
    let searched =
        post(api.address, "/v1/hashtags/rust/counters/searches/events", r#"{"action":"increment","n":3}"#).await;
    assert_eq!((searched.status.as_u16(), &searched.json()["hashtag"]), (202, &json!("rust")));
    let mut found = Vec::new();
    for topic in ["likes", "posts"] {
        let reader = api.broker.reader("test", topic);
        for (partition, log) in reader.logs().await.unwrap() {
            let records = reader.read(&partition, log.start, log.end).await.unwrap();
            found.extend(records.iter().map(|record| {
                let event = decode(record, &several().said_in(topic)).unwrap();
                assert_eq!((record.key, event.subject()), (Some(&b"rust"[..]), "rust"));
                (topic, event.counter.to_string(), matches!(event.deed, Deed::Member { present: true, .. }))
            }));
        }
    }
    assert_eq!(found, [("likes", "searches".to_owned(), false), ("posts", "posts".to_owned(), true)]);
}

#[tokio::test]
async fn a_hashtags_members_are_listed_and_those_of_a_post_of_its_name_are_not() {
    let api = Api::counting(Config::default(), WRITING).await;
    for (name, member) in [("posts", "p-1"), ("likes", "u-1")] {
        api.tables.plant_row(&counter_id("rust", name), member).await;
    }
    let listed = get(api.address, "/v1/hashtags/rust/counters/posts/members").await.json();
    let members: Vec<&Value> = listed["members"].as_array().unwrap().iter().map(|it| &it["member"]).collect();
    assert_eq!((members, &listed["hashtag"]), (vec![&json!("p-1")], &json!("rust")));
    let state = get(api.address, "/v1/hashtags/rust/counters/posts/members/p-1").await.json();
    assert_eq!(state["present"], json!(true));
    for (method, target, problem) in [
        ("GET", "/v1/hashtags/rust/counters/searches/members/p-1", "wrong-kind"),
        ("DELETE", "/v1/hashtags/rust/counters/posts/members/p-1", "no-action"),
        ("POST", "/v1/hashtags/rust/counters/posts/events", "wrong-kind"),
    ] {
        let answer = ask(api.address, method, target).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (409, problem), "{method} {target}");
    }
    let closed = Api::counting(Config::default(), With::default()).await;
    for (method, target) in [
        ("PUT", "/v1/hashtags/rust/counters/posts/members/p-1"),
        ("POST", "/v1/hashtags/rust/counters/searches/events"),
    ] {
        assert_eq!(ask(closed.address, method, target).await.problem(), "writes-off", "{target}");
    }
}
