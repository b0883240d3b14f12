//! What the process tests run on: librdkafka's in-process cluster, the emulator on a loopback port, producers with a
//! ledger, and consumers that end with their test, also where it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, StreamSpecification};
use futures_util::StreamExt;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tally_adapters::dynamodb::Segment;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::{self, Access, Connection, Settings, ensure_tables};
use tally_adapters::kafka;
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{Said, encode, partition_of};
use tally_core::ids::{PostId, RowKey, ShardCount, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Producer, TopicReader};
use tally_core::time::UnixMillis;
use tally_core::topic::Partition;
use tally_emulator::{Config, Emulator};
use tally_service::{Host, Stage as Step};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Instant;

pub(crate) const PARTITIONS: u32 = 12;
/// Long enough for rebalances of the in-process cluster, which take up to fifteen seconds each.
const PATIENCE: Duration = Duration::from_secs(150);

/// Since when a like is there, for each (post, user) of any event.
pub(crate) type Ledger = BTreeMap<(String, String), Option<UnixMillis>>;

/// Likes that are there, and since when.
pub(crate) type Likes = BTreeMap<(String, String), UnixMillis>;

/// Held while a process is begun and while the broker's port is closed: a child shares every open socket until its
/// program is loaded, and librdkafka ends the test where it cannot bind again at once.
static FORKING: Mutex<()> = Mutex::new(());

/// What a consumer says once it reads a partition.
pub(crate) const READING: &str = r#""message":"reading""#;

/// As long as an id may be.
const LONGEST: usize = 256;

pub(crate) struct Stage {
    pub(crate) cluster: MockCluster<'static, DefaultProducerContext>,
    pub(crate) emulator: Emulator,
    claims: Claims,
    pub(crate) rows: dynamodb::Rows,
    endpoint: String,
    producer: kafka::Producer,
    pub(crate) ledger: Ledger,
    /// Records written, and poison among them by place.
    pub(crate) ends: BTreeMap<u32, u64>,
    pub(crate) poison: Vec<(u32, u64)>,
    said: u64,
    /// The broker's port, from its first outage on.
    port: Option<TcpSocket>,
    _server: Host,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        for (topic, partitions) in [("likes", PARTITIONS), ("likes.dlq", 2)] {
            cluster.create_topic(topic, i32::try_from(partitions).unwrap(), 1).unwrap();
        }
        let emulator = Emulator::new(Config::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let host = Host::new("stage");
        let served = emulator.clone();
        host.worker(Step::Support, "emulator", move |stop: tally_service::Stop| async move {
            served.serve(listener, async move { stop.requested().await }).await?;
            Ok(())
        });
        let settings = Settings { endpoint: Some(endpoint.clone()), access: Access::Local, ..Settings::local("") };
        let connection = Connection::open(&settings).await;
        ensure_tables(&connection).await.unwrap();
        let producer = kafka::Producer::new(&kafka::Settings::plaintext(&cluster.bootstrap_servers())).unwrap();
        let (claims, rows) = (Claims::new(&connection, host.clock()), dynamodb::Rows::new(&connection));
        let (ends, poison) = ((0..PARTITIONS).map(|index| (index, 0)).collect(), Vec::new());
        let ledger = Ledger::new();
        let (said, port) = (0, None);
        Self { cluster, emulator, claims, rows, endpoint, producer, ledger, ends, poison, said, port, _server: host }
    }

    /// A client without sockets.
    fn client(&self) -> aws_sdk_dynamodb::Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(&self.endpoint)
            .credentials_provider(Credentials::new("local", "local", None, None, "local"))
            .http_client(self.emulator.http_client());
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }

    /// Has the deployment state that it is written in `format`.
    pub(crate) async fn write_in(&self, format: &str) {
        let update = self.client().update_item().table_name("checkpoints");
        let update = update.key("id", AttributeValue::S("config".to_owned())).update_expression("SET #f=:f");
        let update = update.expression_attribute_names("#f", "format");
        update.expression_attribute_values(":f", AttributeValue::S(format.to_owned())).send().await.unwrap();
    }

    /// Switches the stream of the likes table off.
    pub(crate) async fn switch_stream_off(&self) {
        let off = StreamSpecification::builder().stream_enabled(false).build().unwrap();
        self.client().update_table().table_name("likes").stream_specification(off).send().await.unwrap();
    }

    pub(crate) fn broker_down(&mut self) {
        let _no_fork = FORKING.lock().unwrap();
        self.cluster.broker_down(-1).unwrap();
        self.port.get_or_insert_with(|| hold(&self.cluster.bootstrap_servers()));
    }

    pub(crate) fn broker_up(&self) {
        self.cluster.broker_up(-1).unwrap();
    }

    /// Says `count` events, 30 % of them unlikes, every hundredth poison; ids hold what ids may hold.
    pub(crate) async fn say(&mut self, count: u64) {
        self.say_padded(count, 0).await;
    }

    /// The same, each with `padding` bytes in an unknown field.
    pub(crate) async fn say_padded(&mut self, count: u64, padding: usize) {
        let records: Vec<_> = (self.said..self.said + count).map(|n| self.draw(n, padding)).collect();
        self.said += count;
        let producer = &self.producer;
        let sent = futures_util::stream::iter(records).map(|(post, value, poison)| async move {
            let key = Some(post.as_str().as_bytes());
            let record = Outgoing { topic: "likes", partition: None, key, value: Some(&value), headers: &[] };
            let written = producer.send(record).await.expect("the cluster takes events");
            assert_eq!(written.partition, partition_of(post.as_str().as_bytes(), PARTITIONS));
            (written, poison)
        });
        let mut sent = sent.buffered(500);
        while let Some((written, poison)) = sent.next().await {
            self.ends.insert(written.partition, written.offset.0 + 1);
            if poison {
                self.poison.push((written.partition, written.offset.0));
            }
        }
    }

    /// Says a record that is no event and has so many bytes.
    pub(crate) async fn say_large(&mut self, bytes: usize) {
        let value = pad(7, bytes);
        let (key, value) = (Some(&b"p"[..]), Some(value.as_bytes()));
        let record = Outgoing { topic: "likes", partition: None, key, value, headers: &[] };
        let written = self.producer.send(record).await.expect("the cluster takes it");
        self.ends.insert(written.partition, written.offset.0 + 1);
        self.poison.push((written.partition, written.offset.0));
    }

    /// The record of event `n`: its post, its value, and whether it is poison.
    fn draw(&mut self, n: u64, padding: usize) -> (PostId, Vec<u8>, bool) {
        let draw = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let post = PostId::new(&format!("p#{}\"\u{1f600}", draw % 97)).unwrap();
        if draw.is_multiple_of(100) {
            return (post, br#"{"post_id":"#.to_vec(), true);
        }
        let user = format!("u'{}", (draw / 97) % 211);
        // Of each of these every action.
        let user = if matches!(draw % 500, 1 | 7 | 8) { format!("{user:x<LONGEST$}") } else { user };
        let user = UserId::new(&user).unwrap();
        let direction = if draw % 10 < 3 { Direction::Remove } else { Direction::Add };
        let at = UnixMillis(1_700_000_000_000 + n);
        self.ledger.insert((post.to_string(), user.to_string()), (direction == Direction::Add).then_some(at));
        let mut value = encode(&Definition::likes(), &post, direction, Said::Member(&user), None, at).unwrap();
        if padding > 0 {
            let pad = format!(r#","pad":"{}"}}"#, pad(n, padding));
            value.splice(value.len() - 1.., pad.into_bytes());
        }
        (post, value, false)
    }

    /// Writes one event under `key` into `partition`, with the header `source` if it is given.
    pub(crate) async fn put(&mut self, partition: u32, key: &str, value: &[u8], source: Option<&str>) {
        let headers: Vec<_> = source.map(|source| ("ce_source", Some(source.as_bytes()))).into_iter().collect();
        let (topic, partition, key) = ("likes", Some(partition), Some(key.as_bytes()));
        let record = Outgoing { topic, partition, key, value: Some(value), headers: &headers };
        let written = self.producer.send(record).await.expect("the cluster takes events");
        self.ends.insert(written.partition, written.offset.0 + 1);
    }

    /// Records said and not yet known to be finished.
    pub(crate) async fn behind(&self) -> u64 {
        let mut behind = 0;
        for (index, end) in &self.ends {
            let partition = Partition { topic: "likes".into(), index: *index };
            let kept = self.claims.read(&partition).await.ok().and_then(|claim| claim.kept);
            behind += end - kept.map_or(0, |kept| kept.safe.0);
        }
        behind
    }

    pub(crate) async fn caught_up(&self) {
        eventually("everything is finished", async || self.behind().await == 0).await;
    }

    /// Says events while at most so many are waiting, which keeps below what the in-process cluster holds.
    pub(crate) async fn say_paced(&mut self, count: u64) {
        let mut left = count;
        while left > 0 {
            let step = left.min(2_000);
            self.say(step).await;
            left -= step;
            eventually("room for more events", async || self.behind().await < 40_000).await;
        }
    }

    /// Checks that rows equal the fold, and dead letters the poison.
    pub(crate) async fn check(&self) {
        let there = |(key, since): (&(String, String), &Option<UnixMillis>)| Some((key.clone(), (*since)?));
        let expected: Likes = self.ledger.iter().filter_map(there).collect();
        let rows = self.rows().await;
        assert!(rows == expected, "rows and fold differ: {:?}", differences(&rows, &expected));
        let longest = rows.keys().filter(|(_, user)| user.len() == LONGEST).count();
        assert!(longest > 0 || self.said < 5_000, "an id as long as one may be is among {} rows", rows.len());
        let mut letters = self.letters().await;
        let total = letters.len();
        letters.dedup();
        let mut poison = self.poison.clone();
        poison.sort_unstable();
        assert_eq!(letters, poison, "dead letters and poison");
        let twice = total - letters.len();
        println!("{} rows, {longest} of the longest ids, {total} dead letters, {twice} of them twice", rows.len());
    }

    /// Every row there is.
    pub(crate) async fn rows(&self) -> Likes {
        let mut keys = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self.rows.scan(Segment { index: 0, of: 1 }, after.as_ref()).await.unwrap();
            keys.extend(page.items.into_iter().map(|row| row.pk));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut rows = Likes::new();
        for key in keys {
            let key: RowKey = key.parse().unwrap();
            let mut after = None;
            loop {
                let page = self.rows.likes(&key, after.as_ref(), None).await.unwrap();
                rows.extend(page.items.into_iter().map(|like| {
                    let place = (key.counter.post.to_string(), like.user.to_string());
                    assert_eq!(key.shard, ShardCount::DEFAULT.shard_of(&like.user), "{place:?} is where it belongs");
                    (place, like.liked_at)
                }));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        rows
    }

    /// Where each dead letter came from, in order.
    async fn letters(&self) -> Vec<(u32, u64)> {
        let settings = kafka::Settings::plaintext(&self.cluster.bootstrap_servers());
        let reader = kafka::TopicReader::new(&settings, "stage", "likes.dlq").unwrap();
        let mut letters = Vec::new();
        for (partition, log) in reader.logs().await.unwrap() {
            let mut at = log.start;
            while at < log.end {
                let records = reader.read(&partition, at, log.end).await.unwrap();
                at = records.last_offset().unwrap().next();
                letters.extend(records.iter().map(|record| {
                    let text = |name: &str| {
                        let header = record.header(&format!("__connect.errors.{name}")).unwrap();
                        std::str::from_utf8(header).unwrap()
                    };
                    assert_eq!(text("topic"), "likes");
                    let deployment = String::from_utf8_lossy(record.header("__tally.errors.deployment").unwrap());
                    assert!(deployment.ends_with(":table/likes"), "{deployment}");
                    (text("partition").parse().unwrap(), text("offset").parse().unwrap())
                }));
            }
        }
        letters.sort_unstable();
        letters
    }

    /// The binary, ready to be given more arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = binary();
        command.args(["--brokers", &self.cluster.bootstrap_servers(), "--log-format", "json"]);
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
        command.args(args);
        command
    }

    /// Starts a consumer.
    pub(crate) fn consumer(&self, args: &[&str]) -> Consumer {
        Consumer::start(self.command(&["--admin-listen", "127.0.0.1:0"]).args(args))
    }

    /// Runs a subcommand to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        tokio::task::spawn_blocking(move || output(&mut command)).await.unwrap()
    }
}

/// Digits that compress to about an eighth: half for being digits, a quarter for being said four times.
fn pad(seed: u64, len: usize) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    };
    let part: String = (0..len.div_ceil(32)).map(|_| format!("{:08x}", next())).collect();
    part.repeat(4)
}

/// Keeps the port of a broker that is down: the socket is bound and does not listen, so the system refuses connections and
/// gives the port to no other process.
fn hold(address: &str) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address.parse().unwrap()).unwrap();
    socket
}

/// The first few rows that two tables do not share.
fn differences(rows: &Likes, expected: &Likes) -> Vec<String> {
    let one = rows.iter().filter(|(key, at)| expected.get(key) != Some(at)).map(|row| format!("row {row:?}"));
    let other = expected.iter().filter(|(key, at)| rows.get(key) != Some(at)).map(|row| format!("event {row:?}"));
    one.chain(other).take(10).collect()
}

/// Closes what this process has open and runs a program. The cluster's connections would otherwise be the child's too:
/// closed here, they would stay open there, and whoever waits for an answer would never hear that the broker is gone.
const ALONE: &str = r#"for fd in /dev/fd/*; do fd=${fd##*/}; ((fd < 3)) || eval "exec $fd>&-"; done; exec "$@""#;

/// The binary without any of this process's settings and connections.
fn binary() -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", ALONE, "alone", env!("CARGO_BIN_EXE_tally-consumer")]);
    let settings = std::env::vars_os().map(|(name, _)| name);
    settings.filter(|name| name.to_string_lossy().starts_with("TALLY_")).for_each(|name| _ = command.env_remove(name));
    command.stdin(Stdio::null());
    command
}

/// Begins a process.
fn begin(command: &mut Command) -> Child {
    let _broker_stays = FORKING.lock().unwrap();
    command.spawn().unwrap()
}

/// What the binary says of settings without running.
pub(crate) fn checked(args: &[&str]) -> Output {
    output(binary().arg("--check").args(args))
}

fn output(command: &mut Command) -> Output {
    begin(command.stdout(Stdio::piped()).stderr(Stdio::piped())).wait_with_output().unwrap()
}

/// A consumer process; ended when it goes out of scope.
pub(crate) struct Consumer {
    child: Child,
    log: PathBuf,
}

impl Consumer {
    fn start(command: &mut Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tally-consumer-{}-{}.log", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let log = std::env::temp_dir().join(name);
        let file = File::create(&log).unwrap();
        let child = begin(command.stderr(file).stdout(Stdio::null()));
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log says `text`.
    pub(crate) async fn says(&self, text: &str) {
        eventually(text, async || self.log().contains(text)).await;
    }

    pub(crate) fn signal(&self, name: &str) {
        let mut kill = begin(Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]));
        assert!(kill.wait().unwrap().success());
    }

    /// The most memory it ever had, in bytes, where the system tells.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = peak.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes << 10)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The exit code.
    pub(crate) async fn exit(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "still running: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops it in order.
    pub(crate) async fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.exit().await, Some(0), "{}", self.log());
    }

    /// How many errors of the Kafka client it has counted.
    pub(crate) fn kafka_errors(&self) -> u64 {
        let metrics = self.get("/metrics");
        let values = metrics.lines().filter(|line| line.starts_with("tally_consumer_kafka_errors_total{"));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// What its admin listener answers.
    pub(crate) fn get(&self, path: &str) -> String {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("admin listening")).expect("it listens");
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut stream = TcpStream::connect(event["address"].as_str().unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Already gone unless a test failed; one that is stopped ends by this too.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            println!("--- the end of a consumer's log, newest first\n{}", tail.join("\n"));
        }
        let _ = std::fs::remove_file(&self.log);
    }
}

pub(crate) async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    eventually_after(Duration::ZERO, what, holds).await;
}

/// Waits until `holds`, and for `span` at least: zero unless a longer run is asked for.
pub(crate) async fn eventually_after(span: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await || began.elapsed() < span {
        assert!(began.elapsed() < span + PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A number that a run may be given, to make it longer than it is by default.
pub(crate) fn sized(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}
