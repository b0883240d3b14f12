//! The DynamoDB engines that the tests of the stores run against: the emulator, in this process or over HTTP, or the
//! one that `TALLY_CONTRACT_ENDPOINT` names.

use std::sync::atomic::{AtomicU32, Ordering};

use tally_adapters::dynamodb::registers::Registers;
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_core::ids::ShardCount;
use tally_testkit::Store;

/// The environment variable that names another engine.
const ENDPOINT: &str = "TALLY_CONTRACT_ENDPOINT";
/// The environment variable that names known deviations of that engine. A suite asserts each of them.
const LACKS: &str = "TALLY_CONTRACT_LACKS";
/// The number of shards of every post.
pub(crate) fn shards() -> ShardCount {
    ShardCount::new(4).unwrap()
}

/// The stores over empty tables.
pub(crate) struct Env {
    pub(crate) registers: Registers,
    pub(crate) rows: dynamodb::Rows,
    pub(crate) config: dynamodb::Checkpoints,
    pub(crate) recounts: dynamodb::Recounts,
    pub(crate) stream: dynamodb::Streams,
}

impl Env {
    pub(crate) async fn dynamodb(connection: &Connection) -> Self {
        dynamodb::ensure_tables(connection).await.unwrap();
        dynamodb::check_tables(connection).await.unwrap();
        Self {
            registers: Registers::new(connection),
            rows: dynamodb::Rows::new(connection),
            config: dynamodb::Checkpoints::new(connection),
            recounts: dynamodb::Recounts::new(connection),
            stream: dynamodb::Streams::new(connection),
        }
    }
}

/// An emulator without a socket, and the stores over it.
pub(crate) async fn in_process() -> (Store, Env) {
    let store = Store::start().await;
    let env = Env::dynamodb(&store.repeating(Settings::default().attempts)).await;
    (store, env)
}

pub(crate) async fn emulator_in_process(suite: impl AsyncFnOnce(&Env)) {
    suite(&in_process().await.1).await;
}

pub(crate) async fn emulator_over_http(suite: impl AsyncFnOnce(&Env)) {
    let (endpoint, _serving) = Store::start().await.serve().await;
    let connection = Connection::open(&Settings { endpoint: Some(endpoint), ..Settings::local("") }).await;
    suite(&Env::dynamodb(&connection).await).await;
}

/// Whether another engine is named, which is then the one under test.
pub(crate) fn is_elsewhere() -> bool {
    std::env::var_os(ENDPOINT).is_some()
}

/// Whether this engine leaves PartiQL writes out of its stream.
pub(crate) fn hides_statements() -> bool {
    std::env::var(LACKS).is_ok_and(|lacks| lacks == "records-of-statements")
}

/// Runs a suite with tables of its own on another engine, and leaves them there.
pub(crate) async fn elsewhere(suite: impl AsyncFnOnce(&Env)) {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    let endpoint = std::env::var(ENDPOINT).unwrap_or_else(|error| panic!("{ENDPOINT}: {error}"));
    let prefix = format!("contract-{}-{}-", std::process::id(), TESTS.fetch_add(1, Ordering::Relaxed));
    let settings = Settings { endpoint: Some(endpoint), ..Settings::local(&prefix) };
    suite(&Env::dynamodb(&Connection::open(&settings).await).await).await;
}
