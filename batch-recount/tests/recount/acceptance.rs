//! A recount of a hot post among many small ones while it is written and its stream splits, beside the real change-streamer,
//! over the emulator. The size is small; `RECOUNT_HOT_ROWS`, `RECOUNT_POSTS` and `RECOUNT_WRITES` make it as large as there is
//! time for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::memory::log::Broker;
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Outgoing, Producer, Written};
use tally_emulator::Config;
use tally_service::{Chance, Clock, Exit, Host, Running};
use tally_testkit::{BEGAN, Store};
use tokio::time::Instant;

use crate::started::ended;
use crate::world::{key, post, shards, user};

const TOPIC: &str = "changes";
const PARTITIONS: u32 = 4;
/// Writes under way at once.
const AT_ONCE: u64 = 64;

fn size(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Tables, a log, and the rows that there are.
struct World {
    store: Store,
    broker: Broker,
    clock: Clock,
    /// How many rows each row key has.
    rows: HashMap<(u64, u64), ()>,
    chance: Chance,
}

/// A producer to a topic that states when each record was appended.
struct Stamping(Broker, Clock);

#[async_trait]
impl Producer for Stamping {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.0.write(record, self.1.now())
    }
}

impl World {
    async fn start() -> Self {
        let store = Store::with(Config { shards: 2, seed: 3, ..Config::default() }).await;
        let broker = Broker::new();
        broker.create_topic(TOPIC, PARTITIONS);
        let (clock, chance) = (Clock::starting_at(BEGAN), Chance::seeded(1));
        Self { store, broker, clock, rows: HashMap::new(), chance }
    }

    fn host(&self, name: &str) -> Host {
        let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
        Host::new(name).with_clock(self.clock).with_chance(Chance::seeded(seed))
    }

    fn producer(&self) -> Arc<dyn Producer> {
        Arc::new(Stamping(self.broker.clone(), self.clock))
    }

    fn streamer(&self, name: &str) -> Running {
        let (broker, reader) = (self.broker.clone(), Arc::new(self.broker.reader("streamer", TOPIC)));
        let log = streamer::LogPorts {
            topic: TOPIC.to_owned(),
            producer: self.producer(),
            reader,
            join: Arc::new(move || Ok(Box::new(broker.join("fold", TOPIC)))),
        };
        let rules = streamer::Rules { discover: Duration::from_secs(5), ..streamer::Rules::default() };
        let config = streamer::Config::plain("", Some(shards()), rules);
        let ports = streamer::Ports::over(&self.store.repeating(5), log);
        Running::start(streamer::App::with_ports(config, ports), self.host(name))
    }

    fn ports(&self) -> recount::Ports {
        let reader = Arc::new(self.broker.reader("recount", TOPIC));
        let log = recount::LogPorts { topic: TOPIC.to_owned(), reader, producer: self.producer() };
        recount::Ports::over(&self.store.repeating(5), log)
    }

    fn recount(&self, name: &str) -> Running {
        let config = recount::Config::plain("", Some(shards()), recount::Scope::Audit, recount::Rules::default());
        Running::start(recount::App::with_ports(config, self.ports()), self.host(name))
    }

    /// Has the user like the post, or takes that back.
    async fn write(&mut self, n: u64, u: u64) {
        let mut item = json!({
            "pk": {"S": key(&post(n), &user(u)).to_string()},
            "user_id": {"S": user(u).to_string()},
        });
        if self.rows.remove(&(n, u)).is_some() {
            self.store.call("DeleteItem", json!({"TableName": "likes", "Key": item})).await;
        } else {
            self.rows.insert((n, u), ());
            item["liked_at"] = json!({"N": "1"});
            self.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
        }
    }

    async fn fill(&mut self, posts: std::ops::Range<u64>, users: u64) {
        for n in posts {
            for u in 0..users {
                self.write(n, u).await;
                // The streamer takes its turns.
                if u % AT_ONCE == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    /// Makes a part of a post's count wrong and the total with it, or the total alone.
    async fn damage(&self, n: u64, with_part: bool) {
        let part = format!("s{}", key(&post(n), &user(0)).shard);
        let (update, names) = match with_part {
            true => ("ADD #l :by, #s :by", json!({"#l": "likes", "#s": part})),
            false => ("ADD #l :by", json!({"#l": "likes"})),
        };
        let update = json!({
            "TableName": "like_counts",
            "Key": {"post_id": {"S": post(n).stored()}},
            "UpdateExpression": update,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {":by": {"N": "2"}},
        });
        self.store.call("UpdateItem", update).await;
    }

    /// Waits until everything that is written by now is counted.
    async fn quiet(&self) {
        let (now, changes, deadline) = (self.clock.now(), Changes::new(&self.store.repeating(5)), Instant::now());
        loop {
            let standings = changes.standings(PARTITIONS).await.unwrap();
            let fresh = standings.values().filter(|stated| stated.standing.as_of >= Some(now)).count();
            if fresh == PARTITIONS as usize {
                return;
            }
            assert!(deadline.elapsed() < Duration::from_secs(36_000), "{standings:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The posts whose counts are not as their rows.
    async fn wrong(&self, posts: u64) -> Vec<CounterId> {
        self.quiet().await;
        let mut rows: HashMap<u64, i64> = HashMap::new();
        for (n, _) in self.rows.keys() {
            *rows.entry(*n).or_default() += 1;
        }
        let ids: Vec<CounterId> = (0..posts).map(post).collect();
        let mut wrong = Vec::new();
        for (n, id) in (0..).zip(&ids) {
            let read =
                Counters::new(&self.store.repeating(5)).read(std::slice::from_ref(id), Consistency::Strong).await;
            let counter = read.unwrap().counters.remove(id).map(Result::unwrap).unwrap_or_default();
            let is_right = counter.likes == rows.get(&n).copied().unwrap_or_default() && counter.adds_up();
            wrong.extend((!is_right).then(|| id.clone()));
        }
        wrong
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "night: a soak"]
async fn a_hot_post_and_many_small_ones_are_exact_after_one_audit_while_writes_go_on_and_shards_split() {
    let (hot, posts, writes) = (size("RECOUNT_HOT_ROWS", 1_500), size("RECOUNT_POSTS", 60), size("RECOUNT_WRITES", 30));
    let mut world = World::start().await;
    let streamer = world.streamer("s");
    streamer.ready().await.unwrap();
    world.fill(0..1, hot).await;
    world.fill(1..posts, 8).await;
    world.quiet().await;
    // A quarter of the small posts, as an edit by hand leaves them; and what a loss of the stream leaves behind.
    for n in (1..posts).step_by(4) {
        world.damage(n, n % 8 == 1).await;
    }
    // How far the stream is fed is stored by now.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.quiet().await;
    streamer.kill().await;
    for n in (0..posts).step_by(7) {
        world.write(n, 0).await;
    }
    world.store.emulator.trim("likes", None, None).unwrap();
    let _streamer = world.streamer("t");
    world.quiet().await;
    let damaged = world.wrong(posts).await.len() as u64;
    assert!(damaged >= posts / 4, "{damaged} counts are wrong");

    let mut recount = std::pin::pin!(ended(world.recount("r")));
    let (began, wall) = (Instant::now(), Host::new("wall").clock());
    let wall_began = wall.now();
    let (mut rounds, mut splits) = (0, 0);
    let exit = loop {
        tokio::select! {
            exit = &mut recount => break exit,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                for _ in 0..writes {
                    let u = world.chance.token() % (hot * 2);
                    world.write(0, u).await;
                }
                rounds += 1;
                if rounds % 9 == 0 && rounds < 40 {
                    splits += usize::from(world.store.emulator.split_shard("likes", None, None).is_ok());
                }
            }
        }
    };
    let took = wall.now().since(wall_began);
    println!("the first run took {} s, {rounds} of them with writes; {took:?} on the wall", began.elapsed().as_secs());
    let summary = async || world.ports().recounts.runs(1).await.unwrap().remove(0).summary;
    assert_eq!(exit, Exit::CLEAN, "{:?}", summary().await);
    assert!(splits > 0, "no stream shard was split");
    println!("{:?}", summary().await);
    assert!(summary().await.gaps_closed > 0, "a loss was to be closed");
    assert_eq!(world.wrong(posts).await, []);
    assert_eq!(ended(world.recount("again")).await, Exit::CLEAN);
    assert_eq!(summary().await.found(), 0);
}
