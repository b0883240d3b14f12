//! The connection to the cache: one Redis server or a cluster. The client reconnects by itself, except in two cases
//! where this module replaces its connection: a server that refused the login, and a cluster that answers nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_service::Secret;
use tokio::time::{Instant, timeout};

use super::Settings;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// A shared connection, and how long an answer may take. It is replaced where the client would never recover by itself:
/// after one server has refused its password or its database, since the client would give that answer for ever, even
/// after the operator has mended it; and once a cluster answers nothing, since after a node dies under load requests and
/// the client's recovery may wait for each other for ever.
#[derive(Clone)]
pub(super) struct Link {
    connect: Arc<Connect>,
    timeout: Duration,
    current: Arc<Mutex<(Connection, Silence)>>,
}

/// Returns a connection that is opened when it is first used.
type Connect = dyn Fn() -> RedisResult<Connection> + Send + Sync;

#[derive(Clone)]
enum Connection {
    Single(ConnectionManager),
    Cluster(ClusterConnection),
}

fn connecting(settings: &Settings) -> RedisResult<Arc<Connect>> {
    if settings.cluster {
        let builder = ClusterClient::builder(settings.nodes.iter().map(Secret::expose)).retries(1);
        let client = builder.connection_timeout(CONNECT_TIMEOUT).response_timeout(settings.timeout).build()?;
        let pending = move || client.get_pending_async_connection_with_config(redis::cluster::ClusterConfig::new());
        return Ok(Arc::new(move || Ok(Connection::Cluster(pending()))));
    }
    let client = Client::open(settings.nodes.first().map_or("", Secret::expose))?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(settings.timeout));
    let lazy = move || ConnectionManager::new_lazy_with_config(client.clone(), config.clone());
    Ok(Arc::new(move || lazy().map(Connection::Single)))
}

impl Link {
    /// Connects in the background, when first used.
    pub(super) fn new(settings: &Settings) -> Outcome<Self> {
        let connected = connecting(settings).and_then(|connect| Ok((connect()?, connect)));
        // The client's own message may repeat the address, which may carry a password.
        let (connection, connect) =
            connected.map_err(|error| Fault::Poison(format!("not an address of redis: {}", error.category())))?;
        let current = Arc::new(Mutex::new((connection, Silence::new(patience(settings.timeout)))));
        Ok(Self { connect, timeout: settings.timeout, current })
    }

    /// Returns the answer to a command; `command` builds it with the text of its script or with the digest. One timeout
    /// bounds the whole call, the wait for a connection included.
    pub(super) async fn answer(&self, command: impl Fn(bool) -> Cmd) -> RedisResult<Value> {
        let answer = async {
            let (connection, generation) = self.connection();
            match connection {
                Connection::Single(connection) => {
                    let answer = ask(connection, &command).await;
                    if answer.as_ref().is_err_and(is_refusal) {
                        self.refused(generation);
                    }
                    answer
                }
                Connection::Cluster(connection) => {
                    let answer = ask(connection, &command).await;
                    // Any other error is an answer, too.
                    if !answer.as_ref().is_err_and(RedisError::is_timeout) {
                        self.current.lock().1.answered(generation);
                    }
                    answer
                }
            }
        };
        timeout(patience(self.timeout), answer)
            .await
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }

    /// Returns the connection to ask through, and its generation.
    fn connection(&self) -> (Connection, u64) {
        let (connection, silence) = &mut *self.current.lock();
        if matches!(connection, Connection::Cluster(_))
            && silence.asked()
            && let Ok(next) = (self.connect)()
        {
            *connection = next;
        }
        (connection.clone(), silence.generation)
    }

    /// Replaces the connection of this generation. Requests that are refused together share one new connection.
    fn refused(&self, generation: u64) {
        let (connection, silence) = &mut *self.current.lock();
        if generation == silence.generation
            && let Ok(next) = (self.connect)()
        {
            *connection = next;
            silence.generation += 1;
        }
    }
}

/// Returns whether the server refused the login or the database when the connection was set up. Where the client has no
/// kind for that, it has a text: "refused to authenticate", "refused to switch database".
fn is_refusal(error: &RedisError) -> bool {
    let is_said = || error.to_string().contains("Redis server refused to");
    error.kind() == ErrorKind::AuthenticationFailed
        || (error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError) && is_said())
}

/// Returns how long a call may take if each answer may take `timeout`.
fn patience(timeout: Duration) -> Duration {
    CONNECT_TIMEOUT + timeout * 2
}

/// Sends a command with the digest of its script. A server that does not know the script has not carried it out, and is
/// sent the text.
async fn ask(mut connection: impl ConnectionLike, command: &impl Fn(bool) -> Cmd) -> RedisResult<Value> {
    match command(false).query_async(&mut connection).await {
        Err(error) if error.code() == Some("NOSCRIPT") => command(true).query_async(&mut connection).await,
        answered => answered,
    }
}

/// How many requests have to be unanswered before a connection is replaced. Callers with less patience leave before a
/// slow answer, and the answer to a later request shows that the connection is fine.
const UNANSWERED: u32 = 3;

/// How long a new connection may be silent at most, after others that answered nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// Decides when a connection that answers nothing is replaced. Pure: its caller notes each request and each answer of
/// one connection after another.
struct Silence {
    /// The number of the present connection: answers from an older one are ignored.
    generation: u64,
    /// How long a connection may be silent: the first one, and any other after an answer.
    first: Duration,
    /// How long the present one may be silent: twice as long after each silent one before it, so that a slow server is
    /// reached.
    patience: Duration,
    /// When the first request since the last answer was made, and how many there were.
    unanswered: Option<(Instant, u32)>,
}

impl Silence {
    fn new(patience: Duration) -> Self {
        Self { generation: 0, first: patience, patience, unanswered: None }
    }

    /// Notes a request. Returns whether it has to go over a new connection, because the present one was silent for too
    /// long.
    fn asked(&mut self) -> bool {
        let (since, requests) = self.unanswered.get_or_insert_with(|| (Instant::now(), 0));
        *requests += 1;
        if *requests <= UNANSWERED || since.elapsed() <= self.patience {
            return false;
        }
        self.generation += 1;
        self.patience = (self.patience * 2).min(LONGEST);
        self.unanswered = Some((Instant::now(), 1));
        true
    }

    /// Notes an answer. One from an older connection is ignored.
    fn answered(&mut self, generation: u64) {
        if generation == self.generation {
            self.unanswered = None;
            self.patience = self.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);
    const MOMENT: Duration = Duration::from_millis(1);

    /// Returns how long it takes until a connection that is asked each moment is replaced.
    async fn silent(silence: &mut Silence) -> Duration {
        let began = Instant::now();
        while !silence.asked() {
            advance(MOMENT).await;
        }
        began.elapsed()
    }

    #[test]
    fn only_a_refused_set_up_replaces_the_connection_and_not_an_error_of_a_command() {
        let answer = ErrorKind::Server(ServerErrorKind::ResponseError);
        assert!(is_refusal(&(ErrorKind::AuthenticationFailed, "Password authentication failed").into()));
        assert!(is_refusal(&(answer, "Redis server refused to switch database").into()));
        assert!(!is_refusal(&(answer, "ERR unknown command").into()));
        assert!(!is_refusal(&(ErrorKind::Io, "broken pipe").into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_silent_for_too_long_is_replaced_and_one_hardly_asked_is_not() {
        let mut silence = Silence::new(PATIENCE);
        for _ in 0..UNANSWERED {
            assert!(!silence.asked());
            advance(PATIENCE * 2).await;
        }
        assert!(silence.asked());
        let mut silence = Silence::new(PATIENCE);
        assert_eq!(silent(&mut silence).await, PATIENCE + MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn each_new_connection_is_waited_for_longer_until_one_answers() {
        let mut silence = Silence::new(PATIENCE);
        let mut waited = Vec::new();
        for _ in 0..5 {
            waited.push(silent(&mut silence).await.as_secs());
        }
        assert_eq!(waited, [2, 4, 8, 10, 10]);
        advance(PATIENCE).await;
        silence.answered(silence.generation);
        assert_eq!(silent(&mut silence).await, PATIENCE + MOMENT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_an_older_connection_is_ignored() {
        let mut silence = Silence::new(PATIENCE);
        let first = silence.generation;
        silent(&mut silence).await;
        assert_ne!(silence.generation, first);
        let began = Instant::now();
        while !silence.asked() {
            silence.answered(first);
            advance(MOMENT).await;
        }
        assert!(began.elapsed() > PATIENCE);
    }
}
