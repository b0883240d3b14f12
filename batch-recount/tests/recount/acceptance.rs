//! A test of a recount of a hot post among many small ones while they are written and the stream splits, beside the
//! real change-streamer, over the emulator. The sizes are small; `RECOUNT_HOT_ROWS`, `RECOUNT_POSTS` and
//! `RECOUNT_WRITES` set larger ones.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::memory::log::Broker;
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_core::ids::CounterId;
use tally_emulator::Config;
use tally_service::{Chance, Clock, Exit, Host, Running};
use tally_testkit::{BEGAN, Store, sized};
use tokio::time::Instant;

use crate::liked::Liked;
use crate::started::ended;
use crate::world::{Log, shards};

const TOPIC: &str = "changes";
const PARTITIONS: u32 = 4;

/// Tables, a log, and the rows that exist.
struct World {
    liked: Liked,
    log: Log,
}

impl World {
    async fn start() -> Self {
        let store = Store::with(Config { shards: 2, seed: 3, ..Config::default() }).await;
        let broker = Broker::new();
        broker.create_topic(TOPIC, PARTITIONS);
        let log = Log { broker, clock: Clock::starting_at(BEGAN), losing: Arc::default() };
        Self { liked: Liked::new(store, PARTITIONS, 1), log }
    }

    fn host(&self, name: &str) -> Host {
        let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
        Host::new(name).with_clock(self.log.clock).with_chance(Chance::seeded(seed))
    }

    fn streamer(&self, name: &str) -> Running {
        let (broker, reader) = (self.log.broker.clone(), Arc::new(self.log.broker.reader("streamer", TOPIC)));
        let log = streamer::LogPorts {
            topic: TOPIC.to_owned(),
            producer: Arc::new(self.log.clone()),
            reader,
            join: Arc::new(move || Ok(Box::new(broker.join("fold", TOPIC)))),
        };
        let rules = streamer::Rules { discover: Duration::from_secs(5), ..streamer::Rules::default() };
        let settings = streamer::Settings { rules, ..streamer::Settings::default() };
        let ports = streamer::Ports::over(&self.liked.store.repeating(5), log);
        Running::start(streamer::App::with_ports(Some(shards()), settings, ports), self.host(name))
    }

    fn ports(&self) -> recount::Ports {
        let reader = Arc::new(self.log.broker.reader("recount", TOPIC));
        let log = recount::LogPorts { topic: TOPIC.to_owned(), reader, producer: Arc::new(self.log.clone()) };
        recount::Ports::over(&self.liked.store.repeating(5), log)
    }

    fn recount(&self, name: &str) -> Running {
        let (scope, rules) = (recount::Scope::Audit, recount::Rules::default());
        Running::start(recount::App::with_ports(Some(shards()), scope, rules, self.ports()), self.host(name))
    }

    /// Waits until everything that is written is counted. Returns the counters that do not equal their rows.
    async fn wrong(&self, posts: u64) -> Vec<CounterId> {
        self.liked.counted(self.log.clock.now()).await;
        self.liked.wrong(posts).await
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "night: a soak"]
async fn a_hot_post_and_many_small_ones_are_exact_after_one_audit_while_writes_go_on_and_shards_split() {
    let (hot, posts, writes) =
        (sized("RECOUNT_HOT_ROWS", 1_500), sized("RECOUNT_POSTS", 60), sized("RECOUNT_WRITES", 30));
    let mut world = World::start().await;
    let streamer = world.streamer("s");
    streamer.ready().await.unwrap();
    world.liked.fill(0..1, hot).await;
    world.liked.fill(1..posts, 8).await;
    world.liked.counted(world.log.clock.now()).await;
    // A quarter of the small posts get wrong counts, as edits by hand leave them.
    for n in (1..posts).step_by(4) {
        world.liked.drift(n, n % 8 == 1, 2).await;
    }
    // By then it is stored how far the stream is fed.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.liked.counted(world.log.clock.now()).await;
    streamer.kill().await;
    for n in (0..posts).step_by(7) {
        world.liked.write(n, 0).await;
    }
    world.liked.store.emulator.trim("likes", None, None).unwrap();
    let _streamer = world.streamer("t");
    world.liked.counted(world.log.clock.now()).await;
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
                    let u = world.liked.draw(hot * 2);
                    world.liked.write(0, u).await;
                }
                rounds += 1;
                if rounds % 9 == 0 && rounds < 40 {
                    splits += usize::from(world.liked.store.emulator.split_shard("likes", None, None).is_ok());
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
