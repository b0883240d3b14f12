//! Servers of Redis, started where it is installed: alone, or as nodes of a cluster.

use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tally_adapters::redis::Settings;
use tokio::time::Instant;

/// The environment variable that names the server's binary, such as Valkey's.
const SERVER: &str = "TALLY_REDIS_SERVER";
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// A server of our own: on a free port of the loopback, in a folder of its own, gone when dropped.
pub(super) struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
    /// What it is in a cluster, if it is in one.
    node: Option<Node>,
}

/// What a node of a cluster has.
#[derive(Clone)]
enum Node {
    Slots(RangeInclusive<u16>),
    /// A copy of another's.
    Replica,
}

impl Server {
    pub(super) fn start(cluster: bool) -> Self {
        Self::start_as(cluster.then_some(Node::Slots(0..=16_383)))
    }

    fn start_as(node: Option<Node>) -> Self {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let nth = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tally-redis-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let port = free_port();
        let child = spawn(port, &folder, node.is_some());
        let server = Self { child, port, folder, node };
        server.await_answer();
        server
    }

    pub(super) fn restart(&mut self) {
        self.child = spawn(self.port, &self.folder, self.node.is_some());
        self.await_answer();
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(super) fn settings(&self) -> Settings {
        Settings { cluster: self.node.is_some(), timeout: Duration::from_secs(2), ..Settings::at(vec![self.url()]) }
    }

    /// A plain connection, for looking under the adapter.
    pub(super) fn raw(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// What it says of its cluster.
    fn info(&self) -> String {
        redis::cmd("CLUSTER").arg("INFO").query(&mut self.raw()).unwrap()
    }

    fn await_answer(&self) {
        let deadline = Instant::now() + DEADLINE;
        let answers = || -> redis::RedisResult<()> {
            let mut connection = redis::Client::open(self.url())?.get_connection()?;
            redis::cmd("PING").query::<()>(&mut connection)?;
            let Some(Node::Slots(slots)) = &self.node else { return Ok(()) };
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

/// Three nodes that share the slots, then those that stand in for them: a replica of each, or none.
pub(super) fn three_nodes(replicated: bool) -> Vec<Server> {
    let thirds = [0..=5460, 5461..=10_922, 10_923..=16_383];
    let replicas = if replicated { thirds.len() } else { 0 };
    let roles = thirds.into_iter().map(Node::Slots).chain(std::iter::repeat_n(Node::Replica, replicas));
    let nodes: Vec<_> = roles.map(|node| Server::start_as(Some(node))).collect();
    for other in &nodes[1..] {
        redis::cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(other.port).query::<()>(&mut nodes[0].raw()).unwrap();
    }
    let known = format!("cluster_known_nodes:{}", nodes.len());
    let whole = ["cluster_state:ok", "cluster_slots_assigned:16384", &known];
    eventually("the nodes know each other", || {
        nodes.iter().all(|node| whole.iter().all(|fact| node.info().contains(fact)))
    });
    for (master, replica) in nodes.iter().zip(&nodes[3..]) {
        let id: String = redis::cmd("CLUSTER").arg("MYID").query(&mut master.raw()).unwrap();
        redis::cmd("CLUSTER").arg("REPLICATE").arg(id).query::<()>(&mut replica.raw()).unwrap();
    }
    let linked = |replica: &Server| {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut replica.raw()).unwrap();
        info.contains("master_link_status:up")
    };
    eventually("the replicas are in step", || nodes[3..].iter().all(linked));
    nodes
}

pub(super) fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::yield_now();
    }
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

fn spawn(port: u16, folder: &PathBuf, cluster: bool) -> Child {
    let binary = std::env::var(SERVER).unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = Command::new(&binary);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]).arg(port.to_string());
    if cluster {
        command.args(["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]);
        command.args(["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "2000"]);
    }
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{binary}, which {SERVER} may name elsewhere: {error}"))
}
