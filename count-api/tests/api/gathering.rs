//! Tests that the API gathers amounts for one sum (such as views of a post) that clients send at the same time into
//! fewer events, and that each client is answered for its own amount.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;
use tally_adapters::memory::log::Broker;
use tally_core::fault::Fault;
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_count_api::{App, Config, Ports};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::counter_writes::written;
use crate::harness::{Answer, Api, DEADLINE, WRITING, ask, broker, eventually, post, sent};

/// A producer that counts records, and acknowledges them once the test lets it.
#[derive(Clone)]
struct Counting {
    broker: Broker,
    /// How many records it was given.
    begun: Arc<watch::Sender<usize>>,
    open: Arc<watch::Sender<bool>>,
}

impl Counting {
    fn begun(&self) -> usize {
        *self.begun.borrow()
    }

    async fn has_begun(&self, records: usize) {
        let mut begun = self.begun.subscribe();
        timeout(DEADLINE, begun.wait_for(|begun| *begun == records)).await.expect("it begins in time").unwrap();
    }
}

#[async_trait]
impl Producer for Counting {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.begun.send_modify(|begun| *begun += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        self.broker.send(record).await
    }
}

async fn started() -> (Counting, Api) {
    acknowledging_within(Config::default().write_budget).await
}

/// Starts with this limit for an acknowledgement.
async fn acknowledging_within(write_budget: Duration) -> (Counting, Api) {
    let (begun, open) = (Arc::new(watch::Sender::new(0)), Arc::new(watch::Sender::new(true)));
    let producer = Counting { broker: broker(), begun, open };
    let (counted, broker) = (producer.clone(), producer.broker.clone());
    // All requests come from one client.
    let config = Config { write_rate: 0, write_budget, ..Config::default() };
    let wire = |app: App| App { ports: Ports { producer: Some(Arc::new(counted)), ..app.ports }, ..app };
    let api = Api { broker, ..Api::wired(config, WRITING, wire).await };
    (producer, api)
}

/// Sends the same from each of `clients` at once, and returns their answers.
async fn at_once(address: SocketAddr, target: &str, body: &str, clients: usize) -> Vec<Answer> {
    join_all((0..clients).map(|_| post(address, target, body))).await
}

/// Returns the action and amount of each record.
async fn events(api: &Api) -> Vec<(String, u64)> {
    let written = written(api, "likes").await.into_iter();
    written.map(|(_, event)| (event["action"].as_str().unwrap().to_owned(), event["n"].as_u64().unwrap())).collect()
}

#[tokio::test]
async fn amounts_said_at_once_are_fewer_events_and_each_client_is_answered_for_its_own() {
    let (producer, api) = started().await;
    let body = r#"{"action":"increment","n":3}"#;
    let said = Cell::new(0);
    // Clients whose requests are further apart than amounts gather get an event each.
    eventually("amounts share an event", async || {
        for answer in at_once(api.address, "/v1/posts/p/counters/score/events", body, 20).await {
            let answered = answer.json();
            assert_eq!((answer.status.as_u16(), &answered["n"], &answered["action"]), (202, &json!(3), &json!("up")));
        }
        said.set(said.get() + 20);
        producer.begun() < said.get()
    })
    .await;
    let events = events(&api).await;
    assert_eq!(events.iter().map(|(_, n)| n).sum::<u64>(), 3 * said.get() as u64, "each amount is in one event");
    assert_eq!(events.len(), producer.begun());
}

#[tokio::test]
async fn what_is_added_and_what_is_taken_off_and_other_counters_are_events_of_their_own() {
    let (_, api) = started().await;
    let (add, take) = (r#"{"action":"increment"}"#, r#"{"action":"decrement","n":2}"#);
    let both = ["p", "q"].map(|post_id| format!("/v1/posts/{post_id}/counters/score/events"));
    let views = "/v1/posts/p/counters/views/events".to_owned();
    let said = [(&both[0], add), (&both[0], take), (&both[1], add), (&views, add)];
    let answers = join_all(said.iter().map(|(target, body)| post(api.address, target, body))).await;
    assert!(answers.iter().all(|answer| answer.status == 202));
    let mut events = written(&api, "likes").await;
    events.sort_by_key(|(key, event)| (key.clone(), event["action"].to_string()));
    let events: Vec<_> = events.iter().map(|(key, event)| (key.as_str(), &event["action"], &event["n"])).collect();
    let (up, down, view) = (json!("up"), json!("down"), json!("view"));
    assert_eq!(
        events,
        [("p", &down, &json!(2)), ("p", &up, &json!(1)), ("p", &view, &json!(1)), ("q", &up, &json!(1))]
    );
}

#[tokio::test]
async fn no_event_has_more_than_its_most() {
    let (_, api) = started().await;
    let body = r#"{"action":"increment","n":400000}"#;
    let answers = at_once(api.address, "/v1/posts/p/counters/views/events", body, 7).await;
    assert!(answers.iter().all(|answer| answer.status == 202));
    let events = events(&api).await;
    assert!(events.iter().all(|(_, n)| *n <= 1_000_000), "{events:?}");
    assert_eq!(events.iter().map(|(_, n)| n).sum::<u64>(), 2_800_000);
}

#[tokio::test]
async fn an_event_that_fails_fails_for_every_client_in_it() {
    let (producer, api) = started().await;
    api.broker.refuse_writes("likes", Some(Fault::Transient("canary".to_owned())));
    let body = r#"{"action":"increment"}"#;
    eventually("amounts share an event", async || {
        let begun = producer.begun();
        for answer in at_once(api.address, "/v1/posts/p/counters/views/events", body, 20).await {
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "broker-away"));
            assert!(!String::from_utf8_lossy(&answer.body).contains("canary"));
        }
        producer.begun() < begun + 20
    })
    .await;
    api.broker.refuse_writes("likes", None);
    assert_eq!(post(api.address, "/v1/posts/p/counters/views/events", body).await.status, 202);
    assert_eq!(events(&api).await, [("view".to_owned(), 1)], "what failed is not added to a later event");
}

#[tokio::test]
async fn an_acknowledgement_that_takes_too_long_is_not_waited_for_and_the_client_is_told_when_to_come_back() {
    let (producer, api) = acknowledging_within(Duration::from_millis(50)).await;
    producer.open.send_replace(false);
    let answer = ask(api.address, "PUT", "/v1/posts/p/likes/u").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "broker-away"));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_client_that_leaves_neither_takes_its_amount_away_nor_doubles_it() {
    let (producer, api) = started().await;
    producer.open.send_replace(false);
    let body = r#"{"action":"increment","n":7}"#;
    let head = format!(
        "POST /v1/posts/p/counters/views/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let leaving = sent(api.address, head).await;
    producer.has_begun(1).await;
    drop(leaving);
    let staying = tokio::join!(post(api.address, "/v1/posts/p/counters/views/events", body), async {
        producer.has_begun(2).await;
        producer.open.send_replace(true);
    });
    assert_eq!(staying.0.status, 202);
    eventually("both amounts are written", async || events(&api).await.len() == 2).await;
    assert_eq!(events(&api).await, [("view".to_owned(), 7), ("view".to_owned(), 7)]);
}
