//! Tables, a streamer that follows them, likes that change, and recounts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::memory::Memory;
use tally_batch_recount::{App, Args, Config, Job, Ports, Rules};
use tally_change_streamer as streamer;
use tally_core::audit::{RunRecord, Summary};
use tally_core::batch::Change;
use tally_core::counter::{Counter, ShardTally};
use tally_core::event::Action;
use tally_core::fence::{Advance, Commit, Fence, Offset, Partition, TopicId};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount, UserId};
use tally_core::ports::FencedRows;
use tally_core::time::UnixMillis;
use tally_emulator::{Config as EmulatorConfig, Emulator};
use tally_service::{Chance, Clock, Exit, Host, How, Running};
use tokio::time::Instant;

pub(crate) const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);

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

/// Tables, however they are kept.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) ports: Ports,
    pub(crate) clock: Clock,
    pub(crate) fenced: Arc<dyn FencedRows>,
    /// Processes started so far: no two draw the same.
    pub(crate) started: Arc<AtomicU64>,
}

impl World {
    /// Over the in-memory twins.
    pub(crate) fn twin(memory: &Memory) -> Self {
        let ports = Ports {
            stream: Arc::new(memory.streams()),
            rows: Arc::new(memory.rows()),
            maps: Arc::new(memory.maps()),
            markers: Arc::new(memory.markers()),
            counts: Arc::new(memory.counts()),
            checkpoints: Arc::new(memory.checkpoints()),
            recounts: Arc::new(memory.recounts()),
            producer: None,
        };
        let (clock, fenced) = (Clock::starting_at(BEGAN), Arc::new(memory.likes(shards())));
        Self { ports, clock, fenced, started: Arc::default() }
    }

    /// Over an emulator, through the SDK and without sockets.
    pub(crate) async fn emulated(config: EmulatorConfig) -> (Self, Emulator) {
        let epoch = std::time::UNIX_EPOCH + Duration::from_millis(BEGAN.0);
        let emulator = Emulator::new(EmulatorConfig { epoch: Some(epoch), ..config });
        let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), BEGAN);
        dynamodb::ensure_tables(&connection).await.unwrap();
        (Self::over(&connection, Clock::starting_at(BEGAN)), emulator)
    }

    /// Over the tables of `connection`.
    pub(crate) fn over(connection: &Connection, clock: Clock) -> Self {
        let fenced = Arc::new(dynamodb::Likes::new(connection, shards()));
        Self { ports: Ports::over(connection), clock, fenced, started: Arc::default() }
    }

    pub(crate) fn with(&self, change: impl FnOnce(&mut Ports)) -> Self {
        let mut world = self.clone();
        change(&mut world.ports);
        world
    }

    fn host(&self, name: &str) -> Host {
        let nth = self.started.fetch_add(1, Ordering::Relaxed);
        let seed = name.bytes().fold(nth, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
        Host::new(name).with_clock(self.clock).with_chance(Chance::seeded(seed))
    }

    /// Starts a change-streamer that writes and polls often.
    pub(crate) fn streamer(&self, name: &str) -> Running {
        let mut rules = streamer::Rules::default();
        rules.cut.age = Duration::from_millis(20);
        rules.poll.idle = Duration::from_millis(200);
        let shards = Some(shards());
        let config =
            streamer::Config { table_prefix: String::new(), shards, cache: None, feed: None, changes: None, rules };
        let ports = streamer::Ports {
            stream: Arc::clone(&self.ports.stream),
            counts: Arc::clone(&self.ports.counts),
            checkpoints: Arc::clone(&self.ports.checkpoints),
            recounts: Arc::clone(&self.ports.recounts),
            cache: None,
            feed: None,
            changes: None,
        };
        Running::start(streamer::App::with_ports(config, ports), self.host(name))
    }

    /// Starts a recount by its command line, its rules changed by `adjust`.
    pub(crate) fn start_with(&self, name: &str, line: &[&str], adjust: impl FnOnce(&mut Rules)) -> Running {
        let args = Args::try_parse_from(std::iter::once(&"tally-batch-recount").chain(line)).unwrap();
        let mut config = Config { shards: Some(shards()), ..Config::try_from(args).unwrap() };
        if let Job::Recount(recount) = &mut config.job {
            recount.rules.segments = 3;
            adjust(&mut recount.rules);
        }
        Running::start(App::with_ports(config, self.ports.clone()), self.host(name))
    }

    pub(crate) fn start(&self, name: &str, line: &[&str]) -> Running {
        self.start_with(name, line, |_| {})
    }

    /// A recount from its command line to its exit code.
    pub(crate) async fn recount(&self, line: &[&str]) -> Exit {
        ended(self.start("recount", line)).await
    }

    /// The summary of the latest run.
    pub(crate) async fn summary(&self) -> Summary {
        self.latest().await.summary
    }

    pub(crate) async fn latest(&self) -> RunRecord {
        self.ports.recounts.runs(1).await.unwrap().remove(0)
    }

    pub(crate) async fn counter(&self, post: &CounterId) -> Counter {
        self.ports.counts.counter(post).await.unwrap().unwrap_or_default()
    }

    pub(crate) async fn rows(&self, key: &RowKey) -> i64 {
        let (mut rows, mut after) = (0, None);
        loop {
            let page = self.ports.rows.weights(key, after.as_ref()).await.unwrap();
            rows += page.items.iter().map(|(_, weight)| weight.expect("it is readable").get()).sum::<i64>();
            after = page.next;
            if after.is_none() {
                return rows;
            }
        }
    }

    /// What is wrong with the count of `post`, if anything.
    pub(crate) async fn difference(&self, post: &CounterId) -> Option<String> {
        let counter = self.counter(post).await;
        let mut total = 0;
        for shard in shards().all() {
            let key = RowKey { counter: post.clone(), shard };
            let (rows, tally) = (self.rows(&key).await, counter.shards.get(&shard).cloned().unwrap_or_default());
            total += rows;
            if rows != tally.rows || tally.suspect {
                return Some(format!("{key}: {rows} rows, {tally:?}"));
            }
        }
        (counter.likes != total).then(|| format!("{post}: {total} rows, {} likes", counter.likes))
    }

    /// Waits until all there is has been applied.
    pub(crate) async fn quiet(&self) {
        let began = self.clock.now();
        eventually("every shard is read up to now", async || {
            let label = self.ports.stream.info().await.unwrap().label;
            let states = self.ports.checkpoints.shards(&label).await.unwrap();
            let open: Vec<_> = states.iter().filter(|state| !state.checkpoint.closed).collect();
            !open.is_empty() && open.iter().all(|state| state.checkpoint.at > began)
        })
        .await;
    }

    /// Waits for quiet and holds every counter against its rows.
    pub(crate) async fn exact(&self, posts: u64) {
        self.quiet().await;
        for n in 0..posts {
            assert_eq!(self.difference(&post(n)).await, None);
        }
    }
}

/// The SDK's own client of an emulator, for items that no port would write.
pub(crate) fn client(emulator: &Emulator) -> aws_sdk_dynamodb::Client {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url("http://in-process.invalid")
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(emulator.http_client());
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// Adds `by` to the count of one row key, total and all, in the table itself.
pub(crate) async fn drift(client: &aws_sdk_dynamodb::Client, key: &RowKey, by: i64) {
    use aws_sdk_dynamodb::types::AttributeValue;
    let update = client.update_item().table_name("like_counts");
    let update = update.key("post_id", AttributeValue::S(key.counter.stored().into_owned()));
    let update = update.update_expression("ADD #s :by, #l :by, #v :one");
    let names = [("#s", format!("s{}", key.shard)), ("#l", "likes".to_owned()), ("#v", "version".to_owned())];
    let update = names.into_iter().fold(update, |update, (alias, name)| update.expression_attribute_names(alias, name));
    let update = update.expression_attribute_values(":by", AttributeValue::N(by.to_string()));
    update.expression_attribute_values(":one", AttributeValue::N("1".to_owned())).send().await.unwrap();
}

/// Adds `by` to the count of one row key, total and all, as lost or doubled records would.
pub(crate) fn drifted(mut counter: Counter, key: &RowKey, by: i64) -> Counter {
    let tally: &mut ShardTally = counter.shards.entry(key.shard).or_default();
    tally.rows += by;
    counter.likes += by;
    counter.version += 1;
    counter
}

/// The exit code of a recount that ends by itself.
pub(crate) async fn ended(running: Running) -> Exit {
    let end = running.ended().await;
    let How::Finished(exit) = end.how else { panic!("{end}") };
    exit
}

/// Polls until `holds`, a quarter of a second of the test's time apart.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(3600);
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
}

impl Writer {
    pub(crate) async fn new(world: &World, seed: u64) -> Self {
        let partition = Partition { topic: format!("t{seed}").into(), index: 0 };
        let fence = Fence::new(Offset(0), 0, TopicId("t".into()));
        world.fenced.create_fence(&partition, &fence).await.unwrap();
        Self { world: world.clone(), partition, fence, chance: Chance::seeded(seed) }
    }

    /// Changes rows; no user of a post twice.
    pub(crate) async fn write(&mut self, changes: &[(CounterId, UserId, Action)]) {
        for changes in changes.chunks(90) {
            let to = Offset(self.fence.offset.0 + 1);
            let advance = Advance { from: self.fence.clone(), to };
            let change = |(post, user, action): &'_ (CounterId, UserId, Action)| (post.clone(), user.clone(), *action);
            let owned: Vec<_> = changes.iter().map(change).collect();
            let changes: Vec<Change<'_>> =
                owned.iter().map(|(post, user, action)| Change::like(post, user, *action, BEGAN)).collect();
            let committed = self.world.fenced.commit(&self.partition, &advance, &changes).await;
            assert_eq!(committed, Commit::Done);
            self.fence.offset = to;
        }
    }

    /// `users` likes for each of `posts` posts.
    pub(crate) async fn fill(&mut self, posts: std::ops::Range<u64>, users: u64) {
        for n in posts {
            let likes: Vec<_> = (0..users).map(|u| (post(n), user(u), Action::Like)).collect();
            self.write(&likes).await;
        }
    }

    /// `count` changes, likes and unlikes alike, of `users` users of one post.
    pub(crate) async fn churn(&mut self, of: &CounterId, count: usize, users: u64) {
        for _ in 0..count {
            let action = if self.chance.token().is_multiple_of(2) { Action::Like } else { Action::Unlike };
            let user = user(self.chance.token() % users);
            self.write(&[(of.clone(), user, action)]).await;
        }
    }
}
