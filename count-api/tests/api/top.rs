//! Tests the HTTP routes of lists of what is trending. The tests write the Kafka topic of boards, the lists of single
//! partitions, and ask for the merged lists.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tally_adapters::memory::log::Broker;
use tally_core::ids::{CounterName, PostId, Region};
use tally_core::ports::Producer as _;
use tally_core::ports::log::{DEPLOYMENT, Outgoing};
use tally_count_api::{App, Config};
use tally_trends::{Claim, Place, Ranked, Reason, Tick, Window, Writer, Written, mark};
use tokio::time::{Instant, sleep};

use crate::harness::{Api, DEADLINE, With, eventually, get, get_with};
use crate::live::Listening;

const PARTITIONS: u32 = 2;

/// A moment.
const T: u64 = 1_700_085_602;

struct Boards {
    broker: Broker,
    /// The marks of the boards that each partition has written.
    marks: [u64; PARTITIONS as usize],
    /// The deployment that each record names, if it names one.
    of: Option<&'static str>,
}

fn window(text: &str) -> Window {
    text.parse().unwrap()
}

impl Boards {
    fn new() -> Self {
        let broker = Broker::new();
        broker.create_topic("boards", 1);
        Self { broker, marks: [0; PARTITIONS as usize], of: None }
    }

    /// An API that reads these topics: `boards`, and `blocks` if there are blocked ids.
    async fn api(&self, topics: &[&str]) -> Api {
        let reader = |topic| topics.contains(&topic).then(|| Arc::new(self.broker.reader("test", topic)) as _);
        let listing = |app: App| App { boards: reader("boards"), blocks: reader("blocks"), ..app };
        Api::wired(Config::default(), With::default(), listing).await
    }

    async fn block(&self, id: &str, value: Option<&[u8]>) {
        self.record("blocks", id, value).await;
    }

    async fn send(&self, key: &str, value: &[u8]) {
        self.record("boards", key, Some(value)).await;
    }

    async fn record(&self, topic: &str, key: &str, value: Option<&[u8]>) {
        let headers = self.of.map(|of| (DEPLOYMENT, Some(of.as_bytes())));
        let (key, headers) = (Some(key.as_bytes()), headers.as_slice());
        self.broker.send(Outgoing { topic, partition: Some(0), key, value, headers }).await.unwrap();
    }

    /// Writes a board of a partition, for the day, from a moment on.
    async fn board(&mut self, partition: u32, moment: u64, region: Option<&str>, items: &[(&str, i64)]) {
        let region = region.map(|region| Region::new(region).unwrap());
        let place = Place { counter: CounterName::LIKES, region };
        self.marks[partition as usize] =
            self.marks[partition as usize].wrapping_add(mark(&place, window("24h"), moment));
        let items = items.iter().map(|(id, count)| Ranked::new(PostId::new(id).unwrap(), *count)).collect();
        let (writer, window) = (Writer("w".into()), window("24h"));
        let board = Written { writer, partition, moment, place, window, items, complete: true };
        self.send(&board.key(), &board.value()).await;
    }

    async fn tick(&self, partition: u32, moment: u64, claim: Claim) {
        let claims = vec![(window("1h"), Claim::Exact), (window("24h"), claim)];
        let marks = self.marks[partition as usize];
        let writer = Writer("w".into());
        let tick = Tick { writer, partition, of: PARTITIONS, moment, marks, folded: false, claims };
        self.send(&tick.key(), &tick.value()).await;
    }

    /// Writes the tick of a moment for both partitions.
    async fn ticks(&self, moment: u64, claim: Claim) {
        self.tick(0, moment, Claim::Exact).await;
        self.tick(1, moment, claim).await;
    }
}

async fn loaded(api: &Api, moment: u64) {
    let is_there = async || {
        let answer = get(api.address, "/v1/top?window=24h").await;
        answer.status == 200 && answer.json()["as_of"] == moment * 1000
    };
    eventually("the moment is there", is_there).await;
}

fn list(items: &[(&str, i64)]) -> Value {
    items.iter().map(|(id, count)| json!({"id": id, "count": count})).collect()
}

#[tokio::test]
async fn a_list_is_the_first_of_all_partitions_at_a_moment_that_all_of_them_have() {
    let mut boards = Boards::new();
    boards.board(0, T, None, &[("a", 9), ("b", 5)]).await;
    boards.board(1, T, None, &[("c", 7), ("d", 5)]).await;
    boards.board(1, T, Some("us"), &[("d", 2)]).await;
    boards.ticks(T, Claim::Exact).await;
    let api = boards.api(&["boards"]).await;
    loaded(&api, T).await;
    let answer = get(api.address, "/v1/top?counter=likes&window=24h&k=3").await;
    let expected = json!({
        "counter": "likes", "window": "24h", "from": 1_699_999_200_000_u64, "as_of": T * 1000, "exact": true, "bound": 0,
        "items": list(&[("a", 9), ("c", 7), ("b", 5)]),
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let tag = answer.header("etag").unwrap().to_owned();
    let again = get_with(api.address, "/v1/top?window=24h&k=3", ("if-none-match", &tag)).await;
    assert_eq!(again.status, 304);
    let of_region = get(api.address, "/v1/top?window=24h&region=us").await.json();
    assert_eq!((&of_region["region"], &of_region["items"]), (&"us".into(), &list(&[("d", 2)])));
    // A moment that only one partition has is not served, and a list has no board from after its moment.
    boards.board(0, T + 1, None, &[("a", 1)]).await;
    boards.tick(0, T + 1, Claim::Exact).await;
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(get(api.address, "/v1/top?window=24h&k=3").await.json(), expected);
}

#[tokio::test]
async fn what_is_not_proved_says_how_far_it_may_be_off_or_why_that_is_not_known() {
    let mut boards = Boards::new();
    boards.board(0, T, None, &[("a", 9)]).await;
    boards.ticks(T, Claim::Bound(3)).await;
    let api = boards.api(&["boards"]).await;
    loaded(&api, T).await;
    let answer = get(api.address, "/v1/top?window=24h").await.json();
    assert_eq!((&answer["exact"], &answer["bound"], answer.get("reason")), (&false.into(), &3.into(), None));
    boards.ticks(T + 1, Claim::Unknown(Reason::Loss)).await;
    loaded(&api, T + 1).await;
    let answer = get(api.address, "/v1/top?window=24h").await;
    let said = answer.json();
    assert_eq!((&said["exact"], said.get("bound"), &said["reason"]), (&false.into(), None, &"loss".into()));
    assert_eq!(answer.header("etag"), Some(format!("W/\"{}.0\"", T + 1).as_str()));
    // A partition that falls silent is left out, and the list says so.
    boards.tick(0, T + 62, Claim::Exact).await;
    loaded(&api, T + 62).await;
    assert_eq!(get(api.address, "/v1/top?window=24h").await.json()["reason"], "missing");
}

#[tokio::test]
async fn every_parameter_that_is_wrong_is_named_and_a_region_that_is_not_used_is_empty() {
    let mut boards = Boards::new();
    let api = boards.api(&["boards"]).await;
    let early = get(api.address, "/v1/top?window=24h").await;
    assert_eq!((early.status.as_u16(), early.problem().as_str()), (503, "lists-not-loaded"));
    assert_eq!(early.header("retry-after"), Some("1"));
    boards.board(0, T, None, &[("a", 9)]).await;
    boards.ticks(T, Claim::Exact).await;
    loaded(&api, T).await;
    for (query, parameter, why) in [
        ("window=2h", "window", "query: window: there are 1h, 24h"),
        ("window=soon", "window", "query: window: there are 1h, 24h"),
        ("k=3", "window", "query: window: there are 1h, 24h"),
        ("window=1h&k=0", "k", "query: k: must be a number from 1 to 100"),
        ("window=1h&k=101", "k", "query: k: must be a number from 1 to 100"),
        ("window=1h&region=US", "region", "query: region: a region has 1 to 32 of a-z, 0-9 and -"),
        ("window=1h&counter=no", "counter", "query: counter: there is no counter \"no\""),
        ("window=1h&limit=3", "limit", "query: limit: unknown field"),
    ] {
        for path in ["/v1/top", "/v1/top:stream"] {
            let answer = get(api.address, &format!("{path}?{query}")).await;
            let said = answer.json();
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "bad-query"), "{query}");
            assert_eq!(said["parameter"], parameter, "{query}");
            assert!(said["detail"].as_str().unwrap().starts_with(why), "{said}");
        }
    }
    let empty = get(api.address, "/v1/top?window=24h&region=nowhere&counter=views").await;
    assert_eq!((empty.status.as_u16(), &empty.json()["items"]), (200, &json!([])));
    assert_eq!((&empty.json()["exact"], &empty.json()["region"]), (&true.into(), &"nowhere".into()));
}

#[tokio::test]
async fn a_listener_is_told_the_list_now_and_at_each_change_at_most_once_a_second() {
    let mut boards = Boards::new();
    boards.board(0, T, None, &[("a", 9)]).await;
    boards.ticks(T, Claim::Exact).await;
    let api = boards.api(&["boards"]).await;
    loaded(&api, T).await;
    let mut listening = Listening::at(api.address, "/v1/top:stream?window=24h", None).await;
    let (_, id, first) = listening.event().await;
    assert_eq!((id, &first["items"]), (Some(format!("{T}.1")), &list(&[("a", 9)])));
    // The same list at another moment is not sent again.
    let told = Instant::now();
    boards.ticks(T + 1, Claim::Exact).await;
    loaded(&api, T + 1).await;
    boards.board(1, T + 2, None, &[("c", 7)]).await;
    boards.ticks(T + 2, Claim::Exact).await;
    let (_, id, second) = listening.event().await;
    assert_eq!((id, &second["items"]), (Some(format!("{}.1", T + 2)), &list(&[("a", 9), ("c", 7)])));
    assert!(told.elapsed() >= Duration::from_millis(900) && told.elapsed() < DEADLINE, "{:?}", told.elapsed());
    let seen = format!("{}.1", T + 2);
    let mut again = Listening::at(api.address, "/v1/top:stream?window=24h", Some(&seen)).await;
    boards.ticks(T + 3, Claim::Unknown(Reason::Clock)).await;
    let (_, id, third) = again.event().await;
    assert_eq!((id, &third["reason"]), (Some(format!("{}.0", T + 3)), &"clock".into()));
}

#[tokio::test]
async fn nothing_is_listed_before_it_is_known_what_is_blocked_and_what_is_blocked_then_makes_another_answer() {
    let mut boards = Boards::new();
    boards.board(0, T, None, &[("a", 9), ("b", 5)]).await;
    boards.board(1, T, None, &[("c", 7), ("d", 4)]).await;
    boards.ticks(T, Claim::Exact).await;
    let api = boards.api(&["boards", "blocks"]).await;
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(get(api.address, "/v1/top?window=24h").await.status, 503, "there is no such topic yet");
    boards.broker.create_topic("blocks", 1);
    loaded(&api, T).await;
    let before = get(api.address, "/v1/top?window=24h&k=2").await;
    assert_eq!(before.json()["items"], list(&[("a", 9), ("c", 7)]));
    boards.block("a", Some(b"1")).await;
    let lists = async |items: &[(&str, i64)]| {
        let answer = get(api.address, "/v1/top?window=24h&k=2").await;
        (answer.json()["items"] == list(items)).then(|| {
            assert_eq!(answer.json()["exact"], true);
            answer.header("etag").unwrap().to_owned()
        })
    };
    eventually("it is gone", async || lists(&[("c", 7), ("b", 5)]).await.is_some()).await;
    let tag = lists(&[("c", 7), ("b", 5)]).await.unwrap();
    assert_ne!(Some(tag.as_str()), before.header("etag"));
    // An empty value ends the block, as no value does.
    boards.block("c", Some(b"1")).await;
    boards.block("a", Some(b"")).await;
    eventually("another is gone", async || lists(&[("a", 9), ("b", 5)]).await.is_some()).await;
    boards.block("c", None).await;
    eventually("none is gone", async || lists(&[("a", 9), ("c", 7)]).await.is_some()).await;
    assert_eq!(lists(&[("a", 9), ("c", 7)]).await.as_deref(), before.header("etag"));
}

/// Returns `tally_boards_unreadable_total` of this process. No other test in it adds to that.
fn unreadable() -> u64 {
    let rendered = tally_service::metrics::install().render();
    let count = rendered.lines().find_map(|line| line.strip_prefix("tally_boards_unreadable_total "));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn boards_and_blocks_of_another_deployment_are_skipped() {
    const OWN: &str = "arn:aws:dynamodb:us-east-1:000000000000:table/likes";
    let (mut boards, mut others) = (Boards::new(), Boards::new());
    (boards.of, others.of) = (Some(OWN), Some("another"));
    others.broker = boards.broker.clone();
    others.broker.create_topic("blocks", 1);
    others.board(0, T + 5, None, &[("theirs", 99)]).await;
    others.ticks(T + 5, Claim::Exact).await;
    others.block("a", Some(b"1")).await;
    let (before, api) = (unreadable(), boards.api(&["boards", "blocks"]).await);
    assert_eq!(api.tables.connection().deployment(), Some(OWN));
    // Their board and its ticks have been read.
    eventually("they are counted", async || unreadable() >= before + 1 + u64::from(PARTITIONS)).await;
    let answer = get(api.address, "/v1/top?window=24h").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "lists-not-loaded"));
    boards.board(0, T, None, &[("a", 9), ("b", 5)]).await;
    boards.ticks(T, Claim::Exact).await;
    loaded(&api, T).await;
    assert_eq!(get(api.address, "/v1/top?window=24h").await.json()["items"], list(&[("a", 9), ("b", 5)]));
    // A record of the own deployment blocks, and one of another does not unblock.
    boards.block("b", Some(b"1")).await;
    others.block("b", None).await;
    boards.block("a", Some(b"1")).await;
    let lists = async || get(api.address, "/v1/top?window=24h").await.json()["items"] == list(&[]);
    eventually("both are blocked", lists).await;
}
