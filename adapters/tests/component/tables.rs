//! Tests of DynamoDB tables that disappear, are replaced or are emptied, and of a lost configuration: what a running
//! process reports, what a starting process waits for, and the effect of adopting the tables.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tally_adapters::Deployment;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::{Claims, Confirmed};
use tally_adapters::dynamodb::counters::{Counters, Update, Written};
use tally_adapters::dynamodb::registers::Registers;
use tally_adapters::dynamodb::{Checkpoints, Configuration, Connection, Consistency, SeenTables, ensure_tables};
use tally_core::changes::Place;
use tally_core::definitions::Definitions;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId, ShardCount, UserId};
use tally_core::milestone::Ladder;
use tally_core::register::{Answer, Attempt, Change, Row, Version, Write};
use tally_core::topic::{Offset, Partition};
use tally_emulator::{Fault, Rule};
use tally_service::{App, Clock, Condition, Exit, Host, Readiness, Running, UnixMillis};
use tally_testkit::{BEGAN, Store};
use tokio::time::Instant;

/// A service that only belongs to the deployment.
pub(crate) struct Member {
    pub(crate) connection: Connection,
    pub(crate) creates: bool,
}

impl App for Member {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let deployment = Deployment { tables: &self.connection, shards: None };
        if self.creates {
            deployment.create(&host).await?
        } else {
            deployment.join(&host).await?
        };
        Ok(())
    }
}

fn host() -> Host {
    Host::new("test").with_clock(Clock::starting_at(BEGAN)).with_chance(tally_service::Chance::seeded(1))
}

/// A running member with its own clients.
async fn member(store: &Store) -> (Running, Connection) {
    let connection = store.repeating(1);
    let running = Running::start(Member { connection: connection.clone(), creates: true }, host());
    running.ready().await.unwrap();
    (running, connection)
}

fn condition(readiness: &Readiness) -> Option<Condition> {
    readiness.report().conditions.get("tables").cloned()
}

async fn within_two_seconds(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(2);
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the condition `tables` begins with this.
async fn problem(running: &Running, begins: &str) -> String {
    let reason = || match condition(running.host().readiness()) {
        Some(Condition::NotReady(reason)) => reason,
        _ => String::new(),
    };
    within_two_seconds(begins, || reason().starts_with(begins)).await;
    reason()
}

/// Waits until the tables are those of the configuration, so that they can be written.
async fn adopted(running: &Running) {
    let readiness = running.host().readiness();
    within_two_seconds("the tables are adopted", || condition(readiness) == Some(Condition::Ready)).await;
}

async fn delete(store: &Store, table: &str) {
    store.call("DeleteTable", json!({"TableName": table})).await;
}

/// The stored losses as text.
async fn losses(store: &Store) -> Vec<String> {
    let losses = Changes::new(&store.connection).losses().await.unwrap();
    losses.open().map(|(_, loss)| format!("{}: {}", loss.kind, loss.what)).collect()
}

/// Adopts the tables that are there, as an operator does.
async fn adopt(store: &Store) -> SeenTables {
    let checkpoints = Checkpoints::new(&store.connection);
    let seen = checkpoints.seen_tables().await.unwrap();
    assert!(!seen.is_whole());
    assert_eq!(checkpoints.adopt_tables(&seen, BEGAN).await, Ok(true));
    seen
}

/// Closes the losses, as an audit does at its end.
async fn close_losses(store: &Store) {
    let changes = Changes::new(&store.connection);
    for (number, _) in changes.losses().await.unwrap().open() {
        changes.close_loss(number, BEGAN).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_table_is_named_and_is_a_loss_until_it_is_adopted() {
    let store = Store::start().await;
    let ((one, connection), (two, _)) = (member(&store).await, member(&store).await);
    let watch = connection.tables_watch();
    assert!(watch.is_whole());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(watch.is_whole() && losses(&store).await.is_empty());

    // A table is deleted: both processes notice, and one loss is stored.
    delete(&store, "like_counts").await;
    let gone = problem(&one, "table like_counts is gone").await;
    assert!(gone.contains("`tally adopt tables`") && !watch.is_whole(), "{gone}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(losses(&store).await.len(), 1, "by both processes once");

    // A table of the same name is another one.
    ensure_tables(&store.connection).await.unwrap();
    problem(&one, "table like_counts is another one than before").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let found = losses(&store).await;
    assert!(found.len() == 2 && found.iter().all(|loss| loss.starts_with("table: table like_counts is ")), "{found:?}");
    let counters = Counters::new(&store.connection);
    assert_eq!(counters.has_reserved(Consistency::Strong).await, Ok(false));

    // An operator adopts it; answers are exact again only after an audit has closed the losses.
    let (checkpoints, seen) = (Checkpoints::new(&store.connection), adopt(&store).await);
    assert_eq!(checkpoints.adopt_tables(&seen, BEGAN).await, Ok(false), "it is another configuration now");
    adopted(&one).await;
    assert_eq!(counters.has_reserved(Consistency::Strong).await, Ok(true));
    assert_eq!(losses(&store).await, found, "what was stored is the loss");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!watch.is_whole(), "counters are wrong before the announcement of the loss as well");
    close_losses(&store).await;
    within_two_seconds("all is whole", || watch.is_whole()).await;
    for running in [one, two] {
        assert_eq!(running.stop(Duration::from_secs(5)).await.exit(), Exit::CLEAN);
    }
}

#[tokio::test(start_paused = true)]
async fn a_starting_process_waits_for_a_missing_table_or_stream_by_name() {
    let store = Store::start().await;
    let stream = async |specification: serde_json::Value| {
        store.call("UpdateTable", json!({"TableName": "likes", "StreamSpecification": specification})).await;
    };
    delete(&store, "recounts").await;
    let start = |creates| Running::start(Member { connection: store.repeating(1), creates }, host());
    let members = [start(true), start(false)];
    let wait_for = async |what: &str| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        for running in &members {
            let report = running.host().readiness().report();
            let Some(Condition::NotReady(reason)) = report.conditions.get("tables") else { panic!("{report:?}") };
            assert!(reason.contains(what), "{reason}");
        }
    };
    wait_for("recounts: ResourceNotFoundException: there is no such table").await;
    ensure_tables(&store.connection).await.unwrap();
    stream(json!({"StreamEnabled": false})).await;
    wait_for("table likes has no stream").await;
    stream(json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"})).await;
    for running in members {
        running.ready().await.unwrap();
        assert_eq!(running.stop(Duration::from_secs(5)).await.exit(), Exit::CLEAN);
    }
}

#[tokio::test(start_paused = true)]
async fn a_starting_process_waits_by_name_until_a_replaced_table_is_adopted() {
    let store = Store::start().await;
    let (running, _) = member(&store).await;
    running.stop(Duration::from_secs(5)).await;
    delete(&store, "likes").await;
    ensure_tables(&store.connection).await.unwrap();
    for creates in [true, false] {
        let connection = store.repeating(1);
        let running = Running::start(Member { connection: connection.clone(), creates }, host());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let report = running.host().readiness().report();
        assert!(!report.ready && !connection.tables_watch().is_whole(), "{report:?}");
        let Some(Condition::NotReady(reason)) = report.conditions.get("tables") else { panic!("{report:?}") };
        assert!(reason.contains("table likes is another one than before"), "{reason}");
        running.kill().await;
    }
    assert!(losses(&store).await.is_empty(), "adopting stores it");
    adopt(&store).await;
    assert_eq!(losses(&store).await.len(), 1);
    let (_running, connection) = member(&store).await;
    assert!(!connection.tables_watch().is_whole(), "a start reads that a loss is open");
    close_losses(&store).await;
    within_two_seconds("all is whole", || connection.tables_watch().is_whole()).await;
}

#[tokio::test(start_paused = true)]
async fn counts_of_tables_replaced_and_adopted_between_two_checks_are_inexact_until_a_recount() {
    let store = Store::start().await;
    let (_running, connection) = member(&store).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    delete(&store, "like_counts").await;
    ensure_tables(&store.connection).await.unwrap();
    adopt(&store).await;
    within_two_seconds("the change is seen", || !connection.tables_watch().is_whole()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!connection.tables_watch().is_whole());
    close_losses(&store).await;
    within_two_seconds("all is whole", || connection.tables_watch().is_whole()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_configuration_is_named_and_written_anew_with_a_loss() {
    let store = Store::start().await;
    let (running, connection) = member(&store).await;
    let watch = connection.tables_watch();
    store.delete("checkpoints", &json!({"id": "config"})).await;
    let lost = problem(&running, "the checkpoints table has no `config`").await;
    assert!(lost.contains("`tally adopt tables --shards N`"), "{lost}");
    let checkpoints = Checkpoints::new(&store.connection);
    let seen = checkpoints.seen_tables().await.unwrap();
    assert!(checkpoints.adopt_tables(&seen, BEGAN).await.unwrap_err().to_string().contains("there is no `config`"));
    let with = |shards| Configuration {
        shards: ShardCount::new(shards).unwrap(),
        definitions: Definitions::likes_alone(),
        ladder: Ladder::default(),
        topic: "likes".to_owned(),
    };
    let shards = ShardCount::DEFAULT.get().into();
    assert_eq!(checkpoints.put_config(&with(shards), BEGAN).await, Ok(true));
    assert_eq!(checkpoints.put_config(&with(shards), BEGAN).await, Ok(false), "there is one");
    adopted(&running).await;
    assert!(!watch.is_whole());
    assert_eq!(losses(&store).await, ["table: the configuration was lost"]);

    store.delete("checkpoints", &json!({"id": "config"})).await;
    assert_eq!(checkpoints.put_config(&with(shards / 2), BEGAN).await, Ok(true));
    let ended = running.ended().await;
    assert!(ended.to_string().contains("shards now, and had"), "rows would be put under other keys: {ended}");
}

#[tokio::test(start_paused = true)]
async fn no_process_writes_to_a_replaced_table_or_without_a_configuration() {
    let store = Store::start().await;
    let (running, connection) = member(&store).await;
    let (counters, registers) = (Counters::new(&connection), Registers::new(&connection));
    let like = async |member: &str| {
        let row = Row { key: "p#3".parse().unwrap(), member: UserId::new(member).unwrap() };
        let change = Change::Put(BEGAN.into());
        let write = Write { row, version: Version::new(1, true, Offset(0)), change };
        let confirmed = Confirmed::now(Clock::starting_at(BEGAN));
        registers.write(&[Attempt::first(Arc::new(write))], 0, confirmed).await.remove(0)
    };
    let wrote = async |post: &str| {
        let after = Counter { version: Place::new(1, Offset(1)), ..Counter::default() };
        let update = Update { counter: CounterId::likes(PostId::new(post).unwrap()), before: None, after };
        counters.write(&[update]).await
    };
    assert_eq!(wrote("one").await, Ok(vec![Written::Stored]));
    delete(&store, "like_counts").await;
    ensure_tables(&store.connection).await.unwrap();
    problem(&running, "table like_counts is another one than before").await;
    let refused = wrote("two").await.unwrap_err().to_string();
    assert!(refused.contains("like_counts is another one than before"), "{refused}");
    assert_eq!(like("one").await, Ok(Answer::Stored), "rows are not concerned");
    adopt(&store).await;
    adopted(&running).await;
    assert_eq!(wrote("three").await, Ok(vec![Written::Stored]));

    store.delete("checkpoints", &json!({"id": "config"})).await;
    problem(&running, "the checkpoints table has no `config`").await;
    assert!(wrote("four").await.unwrap_err().to_string().contains("has no `config`"));
    let refused = like("two").await;
    assert!(matches!(&refused, Err(fault) if fault.to_string().contains("has no `config`")));
    let (claims, partition) =
        (Claims::new(&connection, Clock::starting_at(BEGAN)), Partition { topic: "likes".into(), index: 0 });
    assert!(claims.raise(&partition).await.is_err(), "its topic would be begun anew, with versions that rows have");
}

#[tokio::test(start_paused = true)]
async fn a_missing_checkpoints_table_is_named_although_nothing_can_be_stored() {
    let store = Store::start().await;
    let (running, _) = member(&store).await;
    delete(&store, "checkpoints").await;
    problem(&running, "table checkpoints is gone").await;
    ensure_tables(&store.connection).await.unwrap();
    problem(&running, "the checkpoints table has no `config`").await;
}

#[tokio::test(start_paused = true)]
async fn an_emptied_counts_table_is_adopted_with_a_loss() {
    let store = Store::start().await;
    let (running, _) = member(&store).await;
    running.stop(Duration::from_secs(5)).await;
    let counters = Counters::new(&store.connection);
    assert_eq!(counters.has_reserved(Consistency::Strong).await, Ok(true), "the table is new");
    store.delete("like_counts", &json!({"post_id": "\u{1}reserved"})).await;
    let (running, _) = member(&store).await;
    assert_eq!(counters.has_reserved(Consistency::Strong).await, Ok(false), "no start puts it again");
    running.stop(Duration::from_secs(5)).await;
    assert!(adopt(&store).await.is_emptied);
    assert_eq!(counters.has_reserved(Consistency::Strong).await, Ok(true));
    assert_eq!(losses(&store).await, ["table: like_counts was emptied: its reserved row is not there"]);
}

#[tokio::test(start_paused = true)]
async fn a_process_with_a_wrong_clock_uses_the_stores_time() {
    let store = Store::start().await;
    Checkpoints::new(&store.connection).config(None).await.unwrap();
    let began = Instant::now();
    let shows = || BEGAN.plus(began.elapsed());
    for off in [600_000, -600_000] {
        let host = Host::new("test").with_clock(Clock::starting_at(UnixMillis(shows().0.saturating_add_signed(off))));
        let connection = store.repeating(1);
        let running = Running::start(Member { connection, creates: false }, host);
        running.ready().await.unwrap();
        let clock = running.host().clock();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(1_337)).await;
            let says = clock.now();
            assert!(says <= shows() && shows().since(says) < Duration::from_secs(2), "{says} {}", shows());
        }
        running.kill().await;
    }
    let connection = store.repeating(1);
    Checkpoints::new(&connection).deployed().await.unwrap();
    let clock = connection.store_clock();
    for local in [0, BEGAN.0, shows().0 + 86_400_000] {
        let says = clock.now(UnixMillis(local));
        assert!(shows().since(says) < Duration::from_secs(2) && says <= shows(), "{says} {}", shows());
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_tables_do_not_answer_for_seconds_is_not_ready_until_they_do() {
    let store = Store::start().await;
    let (running, connection) = member(&store).await;
    let readiness = running.host().readiness().clone();
    let silent = Fault::Latency { min_ms: 3_600_000, max_ms: 3_600_000 };
    for (fault, says) in [
        (silent, "no look at the tables has succeeded for 5s"),
        (Fault::Outage, "no look at the tables has succeeded for 5s: "),
    ] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        store.faults([Rule::new(fault)]);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(readiness.report().ready, "a few seconds are no news: {:?}", readiness.report());
        let began = Instant::now();
        while !matches!(condition(&readiness), Some(Condition::NotReady(why)) if why.contains(says)) {
            assert!(began.elapsed() < Duration::from_secs(5), "{fault:?}: {:?}", readiness.report());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!readiness.report().ready && connection.tables_watch().is_whole(), "nothing is known to be wrong");
        store.faults([]);
        tokio::time::timeout(Duration::from_secs(15), readiness.until_ready()).await.unwrap();
    }
}
