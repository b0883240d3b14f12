//! Starts Redis servers for tests, alone or as nodes of a cluster, if Redis is installed.

use std::ops::RangeInclusive;
use std::time::Duration;

use tally_adapters::redis::Settings;
use tally_testkit::{Redis, eventually};

/// A server that was started here.
pub(super) struct Server {
    redis: Redis,
    /// Its role in a cluster, if it is in one.
    node: Option<Node>,
}

/// The role of a node in a cluster.
#[derive(Clone)]
enum Node {
    Slots(RangeInclusive<u16>),
    /// A replica of another node.
    Replica,
}

impl Server {
    pub(super) async fn start(cluster: bool) -> Self {
        Self::start_as(cluster.then_some(Node::Slots(0..=16_383))).await
    }

    async fn start_as(node: Option<Node>) -> Self {
        let of_cluster = [
            ["--cluster-enabled", "yes"],
            ["--cluster-announce-ip", "127.0.0.1"],
            ["--cluster-require-full-coverage", "no"],
            ["--cluster-node-timeout", "2000"],
        ];
        let options: &[&str] = if node.is_some() { of_cluster.as_flattened() } else { &[] };
        let server = Self { redis: Redis::start(options).await.unwrap(), node };
        server.answers().await;
        server
    }

    pub(super) async fn restart(&mut self) {
        self.redis.restart().await.unwrap();
        self.answers().await;
    }

    pub(super) fn kill(&self) {
        self.redis.kill();
    }

    pub(super) fn url(&self) -> String {
        self.redis.url()
    }

    pub(super) fn settings(&self) -> Settings {
        Settings { cluster: self.node.is_some(), timeout: Duration::from_secs(2), ..Settings::at(vec![self.url()]) }
    }

    /// A plain connection, to look below the adapter.
    pub(super) fn raw(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// The server's information about its cluster.
    fn info(&self) -> String {
        redis::cmd("CLUSTER").arg("INFO").query(&mut self.raw()).unwrap()
    }

    /// Waits until it has its slots.
    async fn answers(&self) {
        let Some(Node::Slots(slots)) = &self.node else { return };
        let answers = || -> redis::RedisResult<bool> {
            let mut connection = redis::Client::open(self.url())?.get_connection()?;
            let mut add = redis::cmd("CLUSTER");
            // The server refuses this if it has them already.
            let _ = add.arg("ADDSLOTSRANGE").arg(*slots.start()).arg(*slots.end()).query::<()>(&mut connection);
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection)?;
            Ok(info.contains("cluster_state:ok"))
        };
        eventually("the cluster is up", async || answers().is_ok_and(|up| up)).await;
    }
}

/// Three nodes that share the slots, followed by a replica of each if `replicated`.
pub(super) async fn three_nodes(replicated: bool) -> Vec<Server> {
    let thirds = [0..=5460, 5461..=10_922, 10_923..=16_383];
    let replicas = if replicated { thirds.len() } else { 0 };
    let roles = thirds.into_iter().map(Node::Slots).chain(std::iter::repeat_n(Node::Replica, replicas));
    let mut nodes = Vec::new();
    for node in roles {
        nodes.push(Server::start_as(Some(node)).await);
    }
    for other in &nodes[1..] {
        redis::cmd("CLUSTER")
            .arg("MEET")
            .arg("127.0.0.1")
            .arg(other.redis.address().port())
            .query::<()>(&mut nodes[0].raw())
            .unwrap();
    }
    let known = format!("cluster_known_nodes:{}", nodes.len());
    let whole = ["cluster_state:ok", "cluster_slots_assigned:16384", &known];
    eventually("the nodes know each other", async || {
        nodes.iter().all(|node| whole.iter().all(|fact| node.info().contains(fact)))
    })
    .await;
    for (master, replica) in nodes.iter().zip(&nodes[3..]) {
        let id: String = redis::cmd("CLUSTER").arg("MYID").query(&mut master.raw()).unwrap();
        redis::cmd("CLUSTER").arg("REPLICATE").arg(id).query::<()>(&mut replica.raw()).unwrap();
    }
    let linked = |replica: &Server| {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut replica.raw()).unwrap();
        info.contains("master_link_status:up")
    };
    eventually("the replicas are in step", async || nodes[3..].iter().all(linked)).await;
    nodes
}
