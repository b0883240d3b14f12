//! A table of likes that changes, streamers that follow it, and what must be true when all is quiet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region as AwsRegion};
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::memory::Memory;
use tally_change_streamer::{App, Config, Ports, Rules};
use tally_core::batch::Change;
use tally_core::counter::Counter;
use tally_core::event::Action;
use tally_core::fence::{Advance, Commit, Fence, Offset, Partition, TopicId};
use tally_core::ids::{CounterId, PostId, Region, RowKey, ShardCount, StreamLabel, UserId};
use tally_core::ports::{FencedRows, Gap, Markers, Rows, ShardState};
use tally_core::time::UnixMillis;
use tally_emulator::{Config as EmulatorConfig, Emulator};
use tally_service::{Chance, Clock, Host, Running};
use tokio::time::Instant;

pub(crate) const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);
const DEADLINE: Duration = Duration::from_secs(3600);

pub(crate) fn shards() -> ShardCount {
    ShardCount::new(4).unwrap()
}

pub(crate) fn post(n: impl std::fmt::Display) -> CounterId {
    CounterId::likes(PostId::new(&format!("p-{n}")).unwrap())
}

pub(crate) fn user(n: impl std::fmt::Display) -> UserId {
    UserId::new(&format!("u-{n}")).unwrap()
}

pub(crate) fn key(post: &CounterId, user: &UserId) -> RowKey {
    RowKey::of(post, user, shards())
}

/// Tables, however they are kept, and the rows put into them.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) ports: Ports,
    rows: Arc<dyn Rows>,
    pub(crate) markers: Arc<dyn Markers>,
    fenced: Arc<dyn FencedRows>,
    clock: Clock,
}

impl World {
    /// Over the in-memory twins.
    pub(crate) fn twin(memory: &Memory) -> Self {
        let ports = Ports {
            stream: Arc::new(memory.streams()),
            counts: Arc::new(memory.counts()),
            checkpoints: Arc::new(memory.checkpoints()),
            recounts: Arc::new(memory.recounts()),
            cache: None,
            feed: None,
            changes: None,
        };
        let (rows, markers) = (Arc::new(memory.rows()), Arc::new(memory.markers()));
        Self { ports, rows, markers, fenced: Arc::new(memory.likes(shards())), clock: Clock::starting_at(BEGAN) }
    }

    /// Over an emulator, through the SDK and without sockets.
    pub(crate) async fn emulated(config: EmulatorConfig) -> (Self, Emulator) {
        let epoch = std::time::UNIX_EPOCH + Duration::from_millis(BEGAN.0);
        let emulator = Emulator::new(EmulatorConfig { epoch: Some(epoch), ..config });
        let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), BEGAN);
        dynamodb::ensure_tables(&connection).await.unwrap();
        let world = Self::over(&connection, Clock::starting_at(BEGAN));
        (world, emulator)
    }

    /// Over the tables of `connection`.
    pub(crate) fn over(connection: &Connection, clock: Clock) -> Self {
        let (rows, markers) = (dynamodb::Rows::new(connection), dynamodb::Markers::new(connection));
        let fenced = Arc::new(dynamodb::Likes::new(connection, shards()));
        Self { ports: Ports::over(connection), rows: Arc::new(rows), markers: Arc::new(markers), fenced, clock }
    }

    /// Starts a streamer; each has a name of its own, and a seed.
    pub(crate) fn start(&self, name: &str, rules: Rules) -> Running {
        let config = Config {
            table_prefix: String::new(),
            shards: Some(shards()),
            cache: None,
            feed: None,
            changes: None,
            rules,
        };
        let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
        let host = Host::new(name).with_clock(self.clock).with_chance(Chance::seeded(seed));
        Running::start(App::with_ports(config, self.ports.clone()), host)
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    pub(crate) async fn label(&self) -> StreamLabel {
        self.ports.stream.info().await.unwrap().label
    }

    pub(crate) async fn states(&self) -> Vec<ShardState> {
        self.ports.checkpoints.shards(&self.label().await).await.unwrap()
    }

    pub(crate) async fn gaps(&self) -> Vec<Gap> {
        self.ports.checkpoints.gaps().await.unwrap()
    }

    pub(crate) async fn counter(&self, post: &CounterId) -> Counter {
        self.ports.counts.counter(post).await.unwrap().unwrap_or_default()
    }

    /// The rows of a post, by row key.
    pub(crate) async fn count_rows(&self, post: &CounterId) -> BTreeMap<RowKey, i64> {
        let mut counted = BTreeMap::new();
        for shard in shards().all() {
            let key = RowKey { counter: post.clone(), shard };
            let (mut rows, mut after) = (0, None);
            loop {
                let page = self.rows.users(&key, after.as_ref()).await.unwrap();
                rows += i64::try_from(page.items.len()).unwrap();
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            counted.insert(key, rows);
        }
        counted
    }

    /// Whether the counter of `post` equals its rows in every part.
    pub(crate) async fn agrees(&self, post: &CounterId) -> Result<(), String> {
        let (rows, counter) = (self.count_rows(post).await, self.counter(post).await);
        for (key, rows) in &rows {
            let counted = counter.shards.get(&key.shard).map_or(0, |tally| tally.rows);
            if counted != *rows {
                return Err(format!("{key}: {rows} rows, {counted} counted"));
            }
        }
        let total: i64 = rows.values().sum();
        if (counter.likes, counter.sum()) == (total, Ok(total)) {
            Ok(())
        } else {
            Err(format!("{post}: {total} rows, likes {}, sum {:?}", counter.likes, counter.sum()))
        }
    }

    /// Waits until every open stream shard is read up to now: all there is, is applied.
    pub(crate) async fn quiet(&self) {
        let began = self.now();
        eventually("every shard is read up to now", async || {
            let states = self.states().await;
            let open: Vec<_> = states.iter().filter(|state| !state.checkpoint.closed).collect();
            !open.is_empty() && open.iter().all(|state| state.checkpoint.at > began)
        })
        .await;
    }

    /// Waits for quiet and holds every counter against its rows.
    pub(crate) async fn exact(&self, posts: impl IntoIterator<Item = CounterId>) {
        self.quiet().await;
        for post in posts {
            if let Err(difference) = self.agrees(&post).await {
                panic!("{difference}; counter {:?}", self.counter(&post).await);
            }
        }
    }
}

/// A client of the emulator, for what no port does.
pub(crate) fn sdk(emulator: &Emulator) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(AwsRegion::new("us-east-1"))
        .endpoint_url("http://in-process.invalid")
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(emulator.http_client());
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// Polls until `holds`, a quarter of a second of the test's time apart.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Likes and unlikes drawn from a seed, written as a consumer writes them.
pub(crate) struct Writer {
    world: World,
    partition: Partition,
    fence: Fence,
    pub(crate) chance: Chance,
    waiting: BTreeMap<(CounterId, UserId), Action>,
    pub(crate) changes: usize,
}

impl Writer {
    pub(crate) async fn new(world: &World, seed: u64) -> Self {
        let partition = Partition { topic: format!("t{seed}").into(), index: 0 };
        let fence = Fence::new(Offset(0), 0, TopicId("t".into()));
        world.fenced.create_fence(&partition, &fence).await.unwrap();
        let chance = Chance::seeded(seed);
        Self { world: world.clone(), partition, fence, chance, waiting: BTreeMap::new(), changes: 0 }
    }

    pub(crate) async fn set(&mut self, post: CounterId, user: UserId, action: Action) {
        self.waiting.insert((post, user), action);
        if self.waiting.len() >= 99 {
            self.flush().await;
        }
    }

    pub(crate) async fn like(&mut self, post: &CounterId, user: &UserId) {
        self.set(post.clone(), user.clone(), Action::Like).await;
        self.flush().await;
    }

    pub(crate) async fn unlike(&mut self, post: &CounterId, user: &UserId) {
        self.set(post.clone(), user.clone(), Action::Unlike).await;
        self.flush().await;
    }

    /// `count` changes over `posts` posts, a third of them of the hot one, two in seven of them unlikes.
    pub(crate) async fn churn(&mut self, count: usize, posts: u64, users: u64) {
        for _ in 0..count {
            let nth = if self.chance.token().is_multiple_of(3) { 0 } else { self.chance.token() % posts };
            let action = if self.chance.token() % 7 < 2 { Action::Unlike } else { Action::Like };
            let user = user(self.chance.token() % users);
            self.set(post(nth), user, action).await;
        }
        self.flush().await;
    }

    /// A like that says where it comes from.
    pub(crate) async fn like_from(&mut self, post: &CounterId, user: &UserId, region: &str) {
        let region = Region::new(region).unwrap();
        let (at, home, region) = (BEGAN, None, Some(&region));
        let change = Change::Member { counter: post, user, present: true, at, home, region };
        self.commit(&[change]).await;
    }

    pub(crate) async fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let change = |((post, user), action): (_, &Action)| Change::like(post, user, *action, BEGAN);
        let changes: Vec<Change<'_>> =
            waiting.iter().map(|((post, user), action)| change(((post, user), action))).collect();
        self.commit(&changes).await;
    }

    async fn commit(&mut self, changes: &[Change<'_>]) {
        let to = Offset(self.fence.offset.0 + 1);
        let advance = Advance { from: self.fence.clone(), to };
        let committed = self.world.fenced.commit(&self.partition, &advance, changes).await;
        assert_eq!(committed, Commit::Done);
        self.fence.offset = to;
        self.changes += changes.len();
    }
}

/// Rules that act quickly.
pub(crate) fn brisk() -> Rules {
    let mut rules = Rules::default();
    rules.cut.age = Duration::from_millis(20);
    rules.poll.idle = Duration::from_millis(200);
    rules
}
