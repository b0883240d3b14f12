//! The cache over a real Redis, started here where it is installed, alone and as a cluster of one and of three; and what
//! only the real one can show: expiry, a restart, a dead node, formats of other versions.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]
#![expect(clippy::print_stderr, reason = "a skipped suite says so")]

use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::Commands;
use tally_adapters::redis::{Cache, Settings};
use tally_core::ids::PostId;
use tally_core::ports::{Cache as _, Cached};
use tally_core::served::Served;
use tokio::time::Instant;

use crate::cache::contract;
use crate::likes::post;

/// The environment variable that names the server's binary, such as Valkey's.
const SERVER: &str = "TALLY_REDIS_SERVER";
const DEADLINE: Duration = Duration::from_secs(20);

/// A server of our own: on a free port of the loopback, in a folder of its own, gone when dropped.
struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
    /// The slots it has, where it is a node of a cluster.
    slots: Option<RangeInclusive<u16>>,
}

impl Server {
    /// `None`, said aloud, where there is no such binary.
    fn start(cluster: bool) -> Option<Self> {
        Self::with_slots(cluster.then_some(0..=16_383))
    }

    fn with_slots(slots: Option<RangeInclusive<u16>>) -> Option<Self> {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let nth = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tally-redis-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let port = free_port();
        let Some(child) = spawn(port, &folder, slots.is_some()) else {
            eprintln!("SKIPPED: no redis-server here; {SERVER} may name one");
            let _ = std::fs::remove_dir_all(&folder);
            return None;
        };
        let server = Self { child, port, folder, slots };
        server.await_answer();
        Some(server)
    }

    fn restart(&mut self) {
        self.child = spawn(self.port, &self.folder, self.slots.is_some()).expect("it started before");
        self.await_answer();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn settings(&self) -> Settings {
        Settings { cluster: self.slots.is_some(), timeout: Duration::from_secs(2), ..Settings::at(vec![self.url()]) }
    }

    /// A plain connection, for looking under the adapter.
    fn raw(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    fn await_answer(&self) {
        let deadline = Instant::now() + DEADLINE;
        let answers = || -> redis::RedisResult<()> {
            let mut connection = redis::Client::open(self.url())?.get_connection()?;
            let Some(slots) = &self.slots else {
                return connection.get::<_, Option<String>>("ready?").map(|_| ());
            };
            let mut add = redis::cmd("CLUSTER");
            // Refused when it has them already.
            let _ = add.arg("ADDSLOTSRANGE").arg(*slots.start()).arg(*slots.end()).query::<()>(&mut connection);
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection)?;
            let up = info.contains("cluster_state:ok");
            if up { Ok(()) } else { Err((redis::ErrorKind::UnexpectedReturnType, "the cluster is not up").into()) }
        };
        while let Err(error) = answers() {
            assert!(Instant::now() < deadline, "redis does not answer: {error}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone where the test killed it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Three nodes that share the slots; nobody stands in for a dead one.
fn three_nodes() -> Option<Vec<Server>> {
    let thirds = [0..=5460, 5461..=10_922, 10_923..=16_383];
    let nodes = thirds.into_iter().map(|slots| Server::with_slots(Some(slots))).collect::<Option<Vec<_>>>()?;
    for other in &nodes[1..] {
        redis::cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(other.port).query::<()>(&mut nodes[0].raw()).unwrap();
    }
    let knows_all = |node: &Server| {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut node.raw()).unwrap();
        ["cluster_state:ok", "cluster_slots_assigned:16384", "cluster_known_nodes:3"]
            .iter()
            .all(|fact| info.contains(fact))
    };
    let deadline = Instant::now() + DEADLINE;
    while !nodes.iter().all(knows_all) {
        assert!(Instant::now() < deadline, "three nodes do not find each other");
        std::thread::yield_now();
    }
    Some(nodes)
}

fn free_port() -> u16 {
    // A cluster node listens on its port plus 10000, too.
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

fn spawn(port: u16, folder: &PathBuf, cluster: bool) -> Option<Child> {
    let binary = std::env::var(SERVER).unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = Command::new(binary);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]).arg(port.to_string());
    if cluster {
        command.args(["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]);
        command.args(["--cluster-require-full-coverage", "no"]);
    }
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

fn served(version: u64) -> Served {
    Served { version, likes: 7, exact: true, ..Served::default() }
}

async fn fill(cache: &Cache, post: &PostId, version: u64) {
    let token = cache.begin_fill(post).await.unwrap().unwrap();
    assert_eq!(cache.fill(post, &token, &served(version)).await, Ok(true));
}

async fn held(cache: &Cache, post: &PostId) -> Cached {
    cache.get(std::slice::from_ref(post)).await.unwrap().remove(0)
}

#[tokio::test]
async fn one_server_keeps_the_contract() {
    let Some(server) = Server::start(false) else { return };
    contract(&Cache::new(&server.settings()).unwrap()).await;
}

#[tokio::test]
async fn a_cluster_keeps_the_contract() {
    let Some(server) = Server::start(true) else { return };
    contract(&Cache::new(&server.settings()).unwrap()).await;
}

#[tokio::test]
async fn three_nodes_keep_the_contract_and_a_dead_one_takes_only_its_own_along() {
    let Some(mut nodes) = three_nodes() else { return };
    let settings = Settings::at(nodes.iter().map(Server::url).collect());
    let cache = Cache::new(&Settings { timeout: Duration::from_secs(2), ..settings }).unwrap();
    contract(&cache).await;
    let posts: Vec<PostId> = (0..60).map(|n| post(&format!("p-{n}"))).collect();
    for post in &posts {
        fill(&cache, post, 1).await;
    }
    nodes[1].kill();
    let mut lost = Vec::new();
    for post in &posts {
        match cache.get(std::slice::from_ref(post)).await {
            Ok(found) => assert_eq!(found, [Cached::Hit(served(1))]),
            Err(fault) if fault.is_retryable() => lost.push(post),
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!((1..60).contains(&lost.len()), "{} lost", lost.len());
    nodes[1].restart();
    let deadline = Instant::now() + DEADLINE;
    let found = loop {
        match cache.get(&posts).await {
            Ok(found) => break found,
            Err(fault) => assert!(Instant::now() < deadline, "not used again: {fault}"),
        }
    };
    let expected = |post| if lost.contains(&post) { Cached::Miss } else { Cached::Hit(served(1)) };
    assert_eq!(found, posts.iter().map(expected).collect::<Vec<_>>());
    fill(&cache, lost[0], 2).await;
}

#[tokio::test]
async fn many_posts_of_many_slots_are_answered_in_their_order() {
    for cluster in [false, true] {
        let Some(server) = Server::start(cluster) else { return };
        let cache = Cache::new(&server.settings()).unwrap();
        let posts: Vec<PostId> = (0..300).map(|n| post(&format!("p-{n}{{tag-{}}}", n % 7))).collect();
        for (nth, post) in posts.iter().enumerate().filter(|(nth, _)| nth % 3 == 0) {
            fill(&cache, post, nth as u64 + 1).await;
        }
        let newer: Vec<_> = posts.iter().map(|post| (post.clone(), served(250))).collect();
        assert_eq!(cache.update(&newer).await, Ok(83), "those there, and older than version 250");
        let found = cache.get(&posts).await.unwrap();
        for (nth, cached) in found.into_iter().enumerate() {
            let version = (nth % 3 == 0).then(|| (nth as u64 + 1).max(250));
            assert_eq!(cached, version.map_or(Cached::Miss, |version| Cached::Hit(served(version))), "{nth}");
        }
    }
}

#[tokio::test]
async fn versions_beyond_what_lua_counts_are_told_apart() {
    let Some(server) = Server::start(false) else { return };
    let (cache, post) = (Cache::new(&server.settings()).unwrap(), post("p"));
    let big = u64::MAX - 1;
    fill(&cache, &post, 9).await;
    for (version, standing) in [(10, 10), (9, 10), (big, big), (big - 1, big), (big + 1, big + 1), (big, big + 1)] {
        cache.update(&[(post.clone(), served(version))]).await.unwrap();
        assert_eq!(held(&cache, &post).await, Cached::Hit(served(standing)));
    }
}

#[tokio::test]
async fn a_key_expires_within_its_time_and_so_does_the_right_to_fill_it() {
    let Some(server) = Server::start(false) else { return };
    let settings = Settings { ttl: Duration::from_secs(100), fill: Duration::from_millis(50), ..server.settings() };
    let (cache, value, right) = (Cache::new(&settings).unwrap(), post("value"), post("right"));
    fill(&cache, &value, 1).await;
    let left: i64 = server.raw().pttl("likes:value").unwrap();
    assert!((70_000..=100_000).contains(&left), "{left} ms");
    let late = cache.begin_fill(&right).await.unwrap().unwrap();
    let deadline = Instant::now() + DEADLINE;
    let token = loop {
        if let Some(token) = cache.begin_fill(&right).await.unwrap() {
            break token;
        }
        assert!(Instant::now() < deadline, "the right to fill never ends");
    };
    assert_eq!(cache.fill(&right, &late, &served(1)).await, Ok(false));
    let written = cache.fill(&right, &token, &served(2)).await.unwrap();
    assert_eq!(held(&cache, &right).await == Cached::Hit(served(2)), written);
}

#[tokio::test]
async fn a_count_of_another_format_is_neither_served_nor_replaced() {
    let Some(server) = Server::start(false) else { return };
    let (cache, post) = (Cache::new(&server.settings()).unwrap(), post("p"));
    let future = "2:9:whatever";
    server.raw().set::<_, _, ()>("likes:p", future).unwrap();
    assert_eq!(held(&cache, &post).await, Cached::Miss);
    assert_eq!(cache.update(&[(post.clone(), served(1000))]).await, Ok(0));
    assert_eq!(server.raw().get::<_, String>("likes:p").unwrap(), future);
}

#[tokio::test]
async fn ids_are_arguments_and_never_commands() {
    let Some(server) = Server::start(false) else { return };
    let cache = Cache::new(&server.settings()).unwrap();
    for id in ["a b", "\"'); redis.call('FLUSHALL') --", "x y $5 FLUSHALL", "{}", "{", "\u{2028}\u{1f44d}"] {
        let post = post(id);
        fill(&cache, &post, 3).await;
        assert_eq!(held(&cache, &post).await, Cached::Hit(served(3)), "{id:?}");
    }
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut server.raw()).unwrap(), 6);
}

#[tokio::test]
async fn a_server_that_was_gone_is_used_again_and_forgets_its_scripts_without_harm() {
    for cluster in [false, true] {
        let Some(mut server) = Server::start(cluster) else { return };
        let (cache, post) = (Cache::new(&server.settings()).unwrap(), post("p"));
        fill(&cache, &post, 1).await;
        server.kill();
        let asked = Instant::now();
        assert!(cache.update(&[(post.clone(), served(2))]).await.is_err_and(|fault| fault.is_retryable()));
        assert!(asked.elapsed() < Duration::from_secs(6), "it took {:?} to fail", asked.elapsed());
        server.restart();
        let deadline = Instant::now() + DEADLINE;
        let token = loop {
            match cache.begin_fill(&post).await {
                Ok(Some(token)) => break token,
                Ok(None) => panic!("the key survived a server that keeps nothing"),
                Err(fault) => assert!(Instant::now() < deadline, "not used again: {fault}"),
            }
        };
        assert_eq!(cache.fill(&post, &token, &served(3)).await, Ok(true));
        assert_eq!(cache.update(&[(post.clone(), served(4))]).await, Ok(1));
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_repeating_it() {
    let error = Cache::new(&Settings::at(vec!["http://:canary@host".to_owned()])).err().unwrap();
    assert!(!error.to_string().contains("canary"), "{error}");
    assert!(!format!("{:?}", Settings::at(vec!["redis://:canary@host".to_owned()])).contains("canary"));
}
