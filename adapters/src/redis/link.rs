//! The connection to one server or to a cluster. The client reconnects by itself; this module replaces a cluster's
//! connection that answers nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, RedisError, RedisResult, Value};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tokio::time::timeout;

use super::settings::Settings;
use super::silence::Silence;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// A connection, and how long an answer may take.
#[derive(Clone)]
pub(super) struct Link {
    way: Way,
    timeout: Duration,
}

#[derive(Clone)]
enum Way {
    Single(ConnectionManager),
    Cluster(Arc<Cluster>),
}

/// A connection to a cluster, which is replaced once it answers nothing: after a node dies under load, requests and the
/// client's recovery may wait for each other for ever.
struct Cluster {
    client: ClusterClient,
    current: Mutex<Current>,
}

struct Current {
    connection: ClusterConnection,
    silence: Silence,
}

impl Cluster {
    fn new(client: ClusterClient, patience: Duration) -> Self {
        let current = Current { connection: pending(&client), silence: Silence::new(patience) };
        Self { client, current: Mutex::new(current) }
    }

    /// Returns the connection to ask through, and its generation.
    fn connection(&self) -> (ClusterConnection, u64) {
        let mut current = self.current.lock();
        if current.silence.asked() {
            current.connection = pending(&self.client);
        }
        (current.connection.clone(), current.silence.generation())
    }

    /// Notes an answer through a connection. An error is an answer, too, unless it is a time-out.
    fn answered<T>(&self, generation: u64, answer: &RedisResult<T>) {
        if !answer.as_ref().is_err_and(RedisError::is_timeout) {
            self.current.lock().silence.answered(generation);
        }
    }
}

impl Link {
    /// Connects in the background, when first used.
    pub(super) fn new(settings: &Settings) -> Outcome<Self> {
        let way = if settings.cluster { cluster(settings) } else { single(settings) };
        // The client's own message may repeat the address, which may carry a password.
        let way = way.map_err(|error| Fault::Poison(format!("not an address of redis: {}", error.category())))?;
        Ok(Self { way, timeout: settings.timeout })
    }

    /// Returns the answer to a command; `command` builds it with the text of its script or with the digest. One timeout
    /// bounds the whole call, the wait for a connection included.
    pub(super) async fn answer(&self, command: impl Fn(bool) -> Cmd) -> RedisResult<Value> {
        let answer = async {
            match &self.way {
                Way::Single(connection) => ask(connection, &command).await,
                Way::Cluster(cluster) => {
                    let (connection, generation) = cluster.connection();
                    let answer = ask(&connection, &command).await;
                    cluster.answered(generation, &answer);
                    answer
                }
            }
        };
        timeout(patience(self.timeout), answer)
            .await
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }
}

/// Returns how long a call may take if each answer may take `timeout`.
fn patience(timeout: Duration) -> Duration {
    CONNECT_TIMEOUT + timeout * 2
}

fn single(settings: &Settings) -> RedisResult<Way> {
    let address = settings.nodes.first().map_or("", String::as_str);
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(settings.timeout));
    Ok(Way::Single(ConnectionManager::new_lazy_with_config(Client::open(address)?, config)?))
}

fn cluster(settings: &Settings) -> RedisResult<Way> {
    let builder = ClusterClient::builder(settings.nodes.iter().map(String::as_str)).retries(1);
    let client = builder.connection_timeout(CONNECT_TIMEOUT).response_timeout(settings.timeout).build()?;
    Ok(Way::Cluster(Arc::new(Cluster::new(client, patience(settings.timeout)))))
}

/// Returns a connection that is opened when it is first used.
fn pending(client: &ClusterClient) -> ClusterConnection {
    client.get_pending_async_connection_with_config(redis::cluster::ClusterConfig::new())
}

/// Sends a command with the digest of its script. A server that does not know the script has not carried it out, and is
/// sent the text.
async fn ask(connection: &(impl ConnectionLike + Clone), command: &impl Fn(bool) -> Cmd) -> RedisResult<Value> {
    let mut connection = connection.clone();
    match command(false).query_async(&mut connection).await {
        Err(error) if error.code() == Some("NOSCRIPT") => command(true).query_async(&mut connection).await,
        answered => answered,
    }
}
