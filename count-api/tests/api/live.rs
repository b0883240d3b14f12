//! Tests the HTTP routes that stream live counts as server-sent events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tally_count_api::Config;
use tally_emulator::{Fault, Rule};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Api, BEGAN, DEADLINE, With, counter_id, eventually, get, sent, token};
use crate::milestones::{cross, member, milestone, on_ladder};

/// A client that listens and parses the text of a stream itself.
pub(crate) struct Listening {
    stream: TcpStream,
    text: String,
}

impl Listening {
    pub(crate) async fn at(address: SocketAddr, target: &str, last: Option<&str>) -> Self {
        let last = last.map_or_else(String::new, |last| format!("last-event-id: {last}\r\n"));
        Self::with(address, target, &last).await
    }

    /// Listens with these header lines.
    async fn with(address: SocketAddr, target: &str, headers: &str) -> Self {
        let (mut listening, _) = Self::answered(address, target, headers).await;
        listening.until("\r\n\r\n").await;
        listening
    }

    /// Returns also the first line of the answer.
    async fn answered(address: SocketAddr, target: &str, headers: &str) -> (Self, String) {
        let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        let mut listening = Self { stream: sent(address, head).await, text: String::new() };
        let line = listening.until("\r\n").await;
        (listening, line)
    }

    /// Returns the text up to and including `mark`.
    pub(crate) async fn until(&mut self, mark: &str) -> String {
        let mut part = [0; 4096];
        let found = async {
            loop {
                if let Some(at) = self.text.find(mark) {
                    return self.text.drain(..at + mark.len()).collect();
                }
                let read = self.stream.read(&mut part).await.unwrap();
                assert!(read > 0, "the stream ended: {:?}", self.text);
                self.text.push_str(std::str::from_utf8(&part[..read]).unwrap());
            }
        };
        timeout(DEADLINE, found).await.expect("it comes in time")
    }

    /// Returns the name, the id and the data of the next event. The name and the id may be missing.
    pub(crate) async fn event(&mut self) -> (Option<String>, Option<String>, Value) {
        loop {
            let text = self.until("\n\n").await;
            let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            // Anything else is a comment, or says when to reconnect.
            if let Some(data) = line("data: ") {
                return (line("event: "), line("id: "), serde_json::from_str(&data).unwrap());
            }
        }
    }

    /// Returns the next event of a stream of several counters: its name, its id if it has one, and its data.
    async fn named(&mut self) -> (String, Option<String>, Value) {
        let (name, id, data) = self.event().await;
        (name.expect("it is named"), id, data)
    }
}

fn quick() -> Config {
    Config { heartbeat: Duration::from_millis(200), local_ttl: Duration::from_millis(20), ..Config::default() }
}

#[tokio::test]
async fn a_listener_hears_the_count_now_and_at_each_change_and_when_it_reconnects_only_what_is_new() {
    let api = Api::start(quick(), With::default()).await;
    api.plant("p", 1, 1).await;
    let mut listening = Listening::at(api.address, "/v1/posts/p/likes:stream", None).await;
    let now = json!({"post_id": "p", "likes": 1, "version": 1, "exact": true, "as_of": BEGAN.0, "fresh": true});
    assert_eq!(listening.event().await, (None, Some("1.1".to_owned()), now));
    let mut again = Listening::at(api.address, "/v1/posts/p/likes:stream", Some("1.1")).await;
    let quiet = again.until(":\n").await;
    assert!(!quiet.contains("data"), "{quiet:?}");
    api.plant("p", 5, 2).await;
    for listening in
        [&mut listening, &mut again, &mut Listening::at(api.address, "/v1/posts/p/likes:stream", Some("1.1")).await]
    {
        let (_, id, data) = listening.event().await;
        assert_eq!((id.as_deref(), &data["likes"]), (Some("2.1"), &json!(5)));
        listening.until(":\n").await;
    }
}

/// Returns the posts, counters and values of the next `events`.
async fn values(listening: &mut Listening, events: usize) -> BTreeMap<(String, String), i64> {
    let mut values = BTreeMap::new();
    for _ in 0..events {
        let (name, _, data) = listening.named().await;
        assert_eq!(data["counter"], json!(name));
        values.insert((data["post_id"].as_str().unwrap().to_owned(), name), data["value"].as_i64().unwrap());
    }
    values
}

fn of(expected: &[(&str, &str, i64)]) -> BTreeMap<(String, String), i64> {
    expected.iter().map(|(post, name, value)| (((*post).to_owned(), (*name).to_owned()), *value)).collect()
}

#[tokio::test]
async fn a_listener_hears_every_counter_of_a_post_now_and_at_each_change() {
    let api = Api::start(quick(), With::default()).await;
    api.plant("p", 1, 1).await;
    api.plant_counter("p", "score", -2, 3).await;
    let target = "/v1/posts/p/counters:stream";
    let mut listening = Listening::at(api.address, target, None).await;
    listening.until("retry: 2000\n\n").await;
    let now =
        of(&[("p", "likes", 1), ("p", "retweets", 0), ("p", "replies", 0), ("p", "views", 0), ("p", "score", -2)]);
    assert_eq!(values(&mut listening, 5).await, now);
    api.plant_counter("p", "views", 9, 4).await;
    let (name, id, data) = listening.named().await;
    let expected = json!({"post_id": "p", "counter": "views", "value": 9, "version": 4, "exact": true, "as_of": BEGAN.0, "fresh": true});
    assert_eq!((name.as_str(), id.as_deref(), data), ("views", Some("1.1_0.1_0.1_4.1_3.1"), expected));
    listening.until(":\n").await;
    let mut again = Listening::at(api.address, target, Some("1.1_0.1_0.1_4.1_2.1")).await;
    assert_eq!(values(&mut again, 1).await, of(&[("p", "score", -2)]), "only what is another edition");
    assert!(!again.until(":\n").await.contains("data"));
    let mut of_hashtag = Listening::at(api.address, "/v1/hashtags/p/counters:stream", None).await;
    let mut names = BTreeSet::new();
    for _ in 0..2 {
        let (name, _, data) = of_hashtag.named().await;
        assert_eq!((&data["hashtag"], &data["value"]), (&json!("p"), &json!(0)));
        names.insert(name);
    }
    assert_eq!(names, ["posts", "searches"].map(str::to_owned).into());
    api.plant_counter("p", "searches", 4, 5).await;
    let (name, _, data) = of_hashtag.named().await;
    assert_eq!((name.as_str(), &data["value"]), ("searches", &json!(4)));
}

#[tokio::test]
async fn a_listener_is_told_who_reached_a_threshold_and_nothing_of_those_from_before() {
    let api = Api::start(quick(), With::default()).await;
    on_ladder(&api.tables, "10,20").await;
    for (post, target) in [("p", "/v1/posts/p/counters:stream"), ("q", "/v1/counters:stream?post_id=q")] {
        let id = counter_id(post, "likes");
        cross(&api.tables, &id, 15, vec![milestone(10, member("u-1"), 1)]).await;
        let mut listeners = Vec::new();
        for _ in 0..2 {
            let mut listening = Listening::at(api.address, target, None).await;
            values(&mut listening, 5).await;
            listeners.push(listening);
        }
        cross(&api.tables, &id, 5, vec![milestone(20, member("u-2"), 2)]).await;
        for mut listening in listeners {
            let (name, _, data) = listening.named().await;
            assert_eq!((name.as_str(), data["value"].as_i64()), ("likes", Some(20)));
            let (name, event_id, data) = listening.named().await;
            assert_eq!((name.as_str(), event_id), ("milestone", None));
            assert_eq!((data["post_id"].as_str(), data["counter"].as_str()), (Some(post), Some("likes")));
            assert_eq!((data["n"].as_i64(), data["member"].as_str()), (Some(20), Some("u-2")));
        }
    }
}

#[tokio::test]
async fn a_listener_that_was_sent_a_count_is_told_who_reached_its_threshold_although_the_process_stops() {
    let api = Api::start(quick(), With::default()).await;
    on_ladder(&api.tables, "10,20").await;
    let id = counter_id("p", "likes");
    let mut listening = Listening::at(api.address, "/v1/posts/p/counters:stream", None).await;
    values(&mut listening, 5).await;
    let late = Fault::Latency { min_ms: 1_000, max_ms: 1_000 };
    api.tables.store.faults([Rule::new(late).on("Query").table("recounts")]);
    cross(&api.tables, &id, 20, vec![milestone(10, member("u-1"), 1), milestone(20, member("u-2"), 1)]).await;
    assert_eq!(listening.named().await.0, "likes");
    let told = async {
        for n in [10, 20] {
            let (name, _, data) = listening.named().await;
            assert_eq!((name.as_str(), data["n"].as_i64()), ("milestone", Some(n)));
        }
    };
    let (shutdown, ()) = tokio::join!(api.running.stop(Duration::from_secs(20)), told);
    assert!(shutdown.exit().is_clean());
}

#[tokio::test]
async fn one_connection_listens_to_a_page_of_posts() {
    let api = Api::start(Config { listeners: 3, ..quick() }, With::default()).await;
    api.plant_counter("q", "retweets", 5, 1).await;
    let page = "/v1/counters:stream?post_id=p&post_id=q&post_id=p";
    let mut listening = Listening::at(api.address, page, None).await;
    listening.until("retry: 2000\n\n").await;
    let now = values(&mut listening, 10).await;
    assert_eq!((now.len(), now[&("q".to_owned(), "retweets".to_owned())]), (10, 5));
    api.plant_counter("p", "score", -1, 1).await;
    assert_eq!(values(&mut listening, 1).await, of(&[("p", "score", -1)]));
    let answer = get(api.address, page).await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (503, "too-many-listeners"),
        "2 of 3 places are taken"
    );
    drop(listening);
    eventually("the places are free again, all of them", async || {
        let three = "/v1/counters:stream?post_id=a&post_id=b&post_id=c";
        Listening::answered(api.address, three, "").await.1.contains(" 200 ")
    })
    .await;
}

#[tokio::test]
async fn a_page_is_one_to_a_hundred_posts_and_its_stream_costs_a_read_of_each_hundred_counters() {
    let api = Api::start(quick(), With::default()).await;
    let page = |posts: usize| {
        let ids: Vec<String> = (0..posts).map(|n| format!("post_id=01890a5d-ac96-774b-bcce-b302099a{n:04}")).collect();
        format!("/v1/counters:stream?{}", ids.join("&"))
    };
    for (target, problem) in [
        (page(0), "bad-query"),
        (page(101), "bad-query"),
        ("/v1/counters:stream".to_owned(), "bad-query"),
        ("/v1/counters:stream?post_id=p&x=1".to_owned(), "bad-query"),
        ("/v1/counters:stream?post_id=p&post_id=%00".to_owned(), "bad-id"),
    ] {
        let answer = get(api.address, &target).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, problem), "{target}");
    }
    assert_eq!(api.tables.reads(), 0);
    let mut listening = Listening::at(api.address, &page(100), None).await;
    assert_eq!(values(&mut listening, 500).await.len(), 500);
    assert!(api.running.stop(Duration::from_secs(20)).await.exit().is_clean());
}

#[tokio::test]
async fn a_stream_of_nothing_stays_open_until_the_process_stops() {
    let api = Api::start(quick(), With::default()).await;
    for name in ["likes", "retweets", "replies", "views", "score", "posts", "searches"] {
        api.tables.damage(&counter_id("damaged", name)).await;
    }
    let damaged = "/v1/posts/damaged/counters:stream";
    for target in [damaged, "/v1/hashtags/damaged/counters:stream"] {
        let mut listening = Listening::at(api.address, target, None).await;
        listening.until("retry: 2000\n\n").await;
        for _ in 0..3 {
            assert_eq!(listening.until(":\n").await.matches("data").count(), 0, "{target}");
        }
    }
    let mut listening = Listening::at(api.address, damaged, None).await;
    listening.until(":\n").await;
    assert!(api.running.stop(Duration::from_secs(20)).await.exit().is_clean());
    timeout(DEADLINE, listening.stream.read_to_string(&mut String::new())).await.expect("it ends in time").unwrap();
}

#[tokio::test]
async fn a_stream_ends_once_its_token_is_withdrawn_and_one_with_another_token_goes_on() {
    let file = std::env::temp_dir().join(format!("tally-stream-tokens-{}", std::process::id()));
    std::fs::write(&file, "old\nnew\n").unwrap();
    let config = Config { read_token_file: Some(file.clone()), write_token: token("w"), ..quick() };
    let api = Api::start(config, With::default()).await;
    let targets = ["/v1/posts/p/likes:stream", "/v1/posts/p/counters:stream", "/v1/counters:stream?post_id=p"];
    let listen = async |token: &str| {
        let header = format!("authorization: Bearer {token}\r\n");
        let listen = targets.map(|target| Listening::with(api.address, target, &header));
        futures_util::future::join_all(listen).await
    };
    let (old, mut new) = (listen("old").await, listen("new").await);
    std::fs::write(&file, "new\n").unwrap();
    for mut listening in old {
        listening.until("\n\n\r\n0\r\n\r\n").await;
    }
    api.plant("p", 7, 1).await;
    for listening in &mut new {
        listening.until("\":7,").await;
    }
    std::fs::remove_file(&file).unwrap();
}
