//! Tests the HTTP route `createCounter`, and what the API then answers about the shards over which a counter is spread.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tally_adapters::kafka::Spreading;
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::{Shard, ShardCount};
use tally_core::ports::TopicReader;
use tally_core::spread::SumPolicy;
use tally_count_api::{App, Config, Topics};
use tally_service::Clock;
use tally_testkit::records;

use crate::harness::{Api, BEGAN, WRITING, ask, broker, counter, counter_id, eventually, get, post, post_id, put};

async fn writing() -> Api {
    Api::start(Config::default(), WRITING).await
}

#[tokio::test]
async fn a_set_has_the_deployments_shards_whatever_is_asked_for_and_nothing_is_written() {
    let api = writing().await;
    let before = api.tables.store.emulator.stats();
    let writes = ["PutItem", "UpdateItem", "TransactWriteItems", "BatchExecuteStatement", "ExecuteStatement"];
    let shards = ShardCount::DEFAULT.get();
    for body in [
        r#"{"number_of_shards":1}"#,
        r#"{"number_of_shards":64}"#,
        r#"{"number_of_shards":256,"followers_count":50000000}"#,
        r#"{"followers_count":50000000,"post_type":"public"}"#,
        r#"{"followers_count":0,"post_type":"protected"}"#,
    ] {
        let answer = put(api.address, "/v1/posts/p%231/counters/retweets", body).await;
        let expected = json!({"post_id": "p#1", "counter": "retweets", "number_of_shards": shards,
            "decided_by": "deployment", "fixed": true});
        assert_eq!((answer.status.as_u16(), answer.json()), (200, expected), "{body}");
    }
    let hashtag = put(api.address, "/v1/hashtags/rust/counters/posts", r#"{"number_of_shards":64}"#).await;
    assert_eq!((hashtag.status.as_u16(), &hashtag.json()["hashtag"]), (200, &json!("rust")));
    let after = api.tables.store.emulator.stats();
    for write in writes {
        assert_eq!(after.requests.get(write), before.requests.get(write), "{write}");
    }
}

#[tokio::test]
async fn a_sum_begins_with_as_many_partitions_as_it_is_asked_for_where_its_writer_spreads_sums() {
    // No second ends by this clock, after which quiet sums would be spread less.
    let (clock, seen) = (Clock::standing_still(BEGAN), broker());
    let topics: Topics = Arc::new(move |topic: &str| Ok(Arc::new(seen.reader("test", topic)) as Arc<dyn TopicReader>));
    let spreading = Spreading::new(SumPolicy::RoundRobin);
    let wire = |app: App| App { spreading, partitions: Some(topics), ..app };
    let api = Api::at(clock, Config::default(), WRITING, wire).await;
    let created = async |post: &str, body: Value| {
        let answer = put(api.address, &format!("/v1/posts/{post}/counters/views"), &body.to_string()).await;
        assert_eq!(answer.status, 200, "{post} {body}");
        answer.json()
    };
    let (all, mut tries) = (json!({"policy": "writer", "number_of_shards": 4}), 0);
    eventually("the API has seen the partitions", async || {
        tries += 1;
        created(&format!("try-{tries}"), json!({"number_of_shards": 256})).await == all
    })
    .await;
    for (post, body, width) in [
        ("p", json!({"number_of_shards": 2}), 2),
        ("p", json!({"number_of_shards": 4}), 2),
        ("many", json!({"number_of_shards": 256}), 4),
        ("followed", json!({"followers_count": 50_000_000, "post_type": "protected"}), 2),
        ("small", json!({"followers_count": 1_000}), 1),
    ] {
        assert_eq!(created(post, body).await, json!({"policy": "writer", "number_of_shards": width}), "{post}");
    }
    for (name, width) in [("p", 2), ("many", 4), ("small", 1), ("other", 1)] {
        for _ in 0..8 {
            let target = format!("/v1/posts/{name}/counters/views/events");
            assert_eq!(post(api.address, &target, r#"{"action":"increment"}"#).await.status, 202);
        }
        let mut partitions = BTreeSet::new();
        for (partition, run) in records(&api.broker.reader("test", "likes")).await.unwrap() {
            partitions.extend(run.iter().filter(|it| it.key == Some(name.as_bytes())).map(|_| partition));
        }
        assert_eq!(partitions.len(), width, "{name}: {partitions:?}");
    }
    let by_key = writing().await;
    let answer = put(by_key.address, "/v1/posts/p/counters/views", r#"{"number_of_shards":64}"#).await;
    assert_eq!(answer.json(), json!({"policy": "writer", "number_of_shards": 1}), "its events go where their key says");
}

#[tokio::test]
async fn a_number_out_of_bounds_is_refused_and_the_bounds_are_named() {
    let api = writing().await;
    let numbers = ["0", "17", "48", "65", "257", "512", "18446744073709551615"];
    let bounds = numbers.map(|number| (format!(r#"{{"number_of_shards":{number}}}"#), "number_of_shards"));
    let others = [
        ("{}", "number_of_shards"),
        (r#"{"post_type":"public"}"#, "number_of_shards"),
        (r#"{"number_of_shards":-32}"#, "number_of_shards"),
        (r#"{"number_of_shards":32.5}"#, "number_of_shards"),
        (r#"{"followers_count":"many"}"#, "followers_count"),
        (r#"{"followers_count":5,"post_type":"private"}"#, "post_type"),
        (r#"{"followers_count":5,"x":1}"#, "x"),
    ];
    let others = others.map(|(body, parameter)| (body.to_owned(), parameter));
    for (nth, (body, parameter)) in bounds.iter().chain(&others).enumerate() {
        let answer = put(api.address, "/v1/posts/p/counters/likes", body).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-body"), "{body}");
        let said = answer.json();
        assert_eq!(said["parameter"], *parameter, "{body}");
        let named = said["detail"] == "body: number_of_shards: it is a power of two from 1 to 256";
        assert_eq!(named, nth < bounds.len(), "{said}");
    }
    let bodiless = ask(api.address, "PUT", "/v1/posts/p/counters/likes").await;
    assert_eq!((bodiless.status.as_u16(), bodiless.problem().as_str()), (415, "not-json"));
    let unknown = put(api.address, "/v1/posts/p/counters/posts", r#"{"number_of_shards":32}"#).await;
    assert_eq!((unknown.status.as_u16(), unknown.problem().as_str()), (404, "unknown-counter"));
    let elsewhere = put(api.address, "/v1/posts/p/likes/u", r#"{"number_of_shards":32}"#).await;
    assert_eq!(elsewhere.problem(), "unexpected-body", "no other PUT has a body");
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
    let expected = json!({"post_id": "p", "counter": "likes", "value": 7, "version": 9, "exact": true,
        "as_of": BEGAN.0, "fresh": true, "decided_by": "deployment", "corrections": 0,
        "updated_at": BEGAN.0, "shards": values(ShardCount::DEFAULT.get())});
    assert_eq!((answer.status.as_u16(), answer.json()), (200, expected));
    assert_eq!((answer.header("cache-control"), answer.header("etag")), (Some("no-store"), None));
    let sum = get(api.address, "/v1/posts/p/counters/views?detail=shards").await.json();
    let of_sum = json!({"post_id": "p", "counter": "views", "value": 7, "version": 9, "exact": true,
        "as_of": BEGAN.0, "fresh": true, "policy": "writer", "corrections": 0, "updated_at": BEGAN.0,
        "shards": values(ShardCount::DEFAULT.get())});
    assert_eq!(sum, of_sum);
    let doubted = [Shard::new(3).unwrap()].into();
    let corrected = Counter { corrections: 2, gap: Some(Place::from_stored(8)), doubt: doubted, ..counter };
    api.tables.plant(&post_id("p"), corrected).await;
    let corrected = get(api.address, target).await.json();
    assert_eq!(
        json!([corrected["exact"], corrected["corrections"], corrected["gap"], corrected["doubt"]]),
        json!([false, 2, 8, [3]])
    );
    assert_eq!(get(api.address, "/v1/posts/p/counters/likes").await.json().get("decided_by"), None);
    for query in ["detail=rows", "x=1", "detail="] {
        let answer = get(api.address, &format!("/v1/posts/p/counters/likes?{query}")).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-query"), "{query}");
    }
}
