//! The connection: one server, or a cluster whose commands are grouped by slot. The client reconnects by itself; a cluster's
//! connection that answers nothing is replaced here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::Slot;
use redis::{Client, Pipeline, RedisError, RedisResult, Value};
use tally_core::Map;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tokio::time::timeout;

use super::settings::Settings;
use super::silence::{Generation, Silence, Verdict};
use super::{Command, is_unknown_script};

/// Slots written to at once.
const SIDE_BY_SIDE: usize = 64;

/// Where commands go.
#[derive(Clone)]
pub(super) struct Link {
    way: Way,
    settings: Settings,
}

#[derive(Clone)]
enum Way {
    Single(ConnectionManager),
    Cluster(Arc<Cluster>),
}

/// A connection to a cluster that is replaced once it answers nothing: where a node dies under load, the client's recovery
/// can come to wait for requests that wait for it, and then never ends.
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

    /// The connection to ask through, and its generation.
    fn connection(&self) -> (ClusterConnection, Generation) {
        let mut current = self.current.lock();
        if current.silence.asked() == Verdict::Replace {
            current.connection = pending(&self.client);
        }
        (current.connection.clone(), current.silence.generation())
    }

    /// Takes note of what came through a connection: an error is an answer, too, but for silence.
    fn answered<T>(&self, generation: Generation, answer: &RedisResult<T>) {
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
        Ok(Self { way, settings: settings.clone() })
    }

    /// The commands' answers, in their order. One timeout bounds all of it, the wait for a connection included.
    pub(super) async fn answers(&self, commands: &[Command<'_>]) -> RedisResult<Vec<Value>> {
        let answers = async {
            match &self.way {
                Way::Single(connection) => pipeline(connection, &commands.iter().collect::<Vec<_>>()).await,
                Way::Cluster(cluster) => by_slot(cluster, commands).await,
            }
        };
        timeout(patience(&self.settings), answers)
            .await
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }
}

fn patience(settings: &Settings) -> Duration {
    settings.connect_timeout + settings.timeout * 2
}

fn single(settings: &Settings) -> RedisResult<Way> {
    let address = settings.nodes.first().map_or("", String::as_str);
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(settings.connect_timeout))
        .set_response_timeout(Some(settings.timeout));
    Ok(Way::Single(ConnectionManager::new_lazy_with_config(Client::open(address)?, config)?))
}

fn cluster(settings: &Settings) -> RedisResult<Way> {
    let builder = ClusterClient::builder(settings.nodes.iter().map(String::as_str)).retries(1);
    let client = builder.connection_timeout(settings.connect_timeout).response_timeout(settings.timeout).build()?;
    Ok(Way::Cluster(Arc::new(Cluster::new(client, patience(settings)))))
}

/// A connection that is made when it is first used.
fn pending(client: &ClusterClient) -> ClusterConnection {
    client.get_pending_async_connection_with_config(redis::cluster::ClusterConfig::new())
}

/// Sends commands of one server together, scripts by their digests. A server that does not know a script has carried out
/// none of the calls, and is sent the texts.
async fn pipeline(connection: &(impl ConnectionLike + Clone), commands: &[&Command<'_>]) -> RedisResult<Vec<Value>> {
    match send(connection.clone(), commands, false).await {
        Err(error) if is_unknown_script(&error) => send(connection.clone(), commands, true).await,
        answered => answered,
    }
}

async fn send(
    mut connection: impl ConnectionLike,
    commands: &[&Command<'_>],
    with_texts: bool,
) -> RedisResult<Vec<Value>> {
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command.spelled(with_texts));
    }
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    pipeline.query_async(&mut connection).await
}

/// Sends commands slot by slot, some slots at once, and puts the answers back in order. An error of one slot fails the
/// whole call; every command may be sent again.
async fn by_slot(cluster: &Cluster, commands: &[Command<'_>]) -> RedisResult<Vec<Value>> {
    let (connection, generation) = cluster.connection();
    let mut slots: Map<Slot, Vec<usize>> = Map::default();
    for (index, command) in commands.iter().enumerate() {
        slots.entry(Slot::for_key(command.key())).or_default().push(index);
    }
    let mut answers = vec![Value::Nil; commands.len()];
    let slots: Vec<_> = slots.into_values().collect();
    for some in slots.chunks(SIDE_BY_SIDE) {
        let calls = |indexes: &Vec<usize>| indexes.iter().map(|index| &commands[*index]).collect::<Vec<_>>();
        let sent = some.iter().map(|indexes| {
            let (connection, calls) = (&connection, calls(indexes));
            async move { pipeline(connection, &calls).await }
        });
        for (indexes, answered) in some.iter().zip(join_all(sent).await) {
            cluster.answered(generation, &answered);
            for (index, answer) in indexes.iter().zip(answered?) {
                answers[*index] = answer;
            }
        }
    }
    Ok(answers)
}
