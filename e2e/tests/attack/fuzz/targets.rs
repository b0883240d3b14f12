//! Fuzz targets for everything that reads foreign bytes. Each target takes any input, and panics if a law is broken.
//!
//! A test runs them over the committed corpus (`fuzz/corpus`) and mutations of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use tally_adapters::dynamodb::Checkpoints;
use tally_adapters::dynamodb::changes::{Changes, Config as Log};
use tally_core::cached;
use tally_core::changes::{self, DeploymentId, Effect, Message, Place};
use tally_core::definitions::{Definitions, Direction, Entry};
use tally_core::event::{Deed, MAX_AMOUNT, Said, decode_value, encode};
use tally_core::fold::{Change, Counter, Partition};
use tally_core::ids::{CachePrefix, CounterId, CounterName, MemberKey, ReservedKey, RowKey, Shard, UserId, check_id};
use tally_core::tally::{RawRecord, read};
use tally_core::time::UnixMillis;
use tally_core::topic::TopicId;
use tally_core::weight::Weight;
use tally_count_api::{App, Config, Ports};
use tally_service::{Arguments, Clock, Host, Running};
use tally_testkit::{BEGAN, Store};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::bad_input::{status, strike};
use crate::fuzz::store;

/// Takes any bytes, and panics if they break a law.
pub(super) type Target = fn(&[u8]);

/// All targets with their names, which are also those of their corpus folders.
pub(super) const TARGETS: [(&str, Target); 11] = [
    ("event", event),
    ("row_key", row_key),
    ("stream_record", store::stream_record),
    ("counter", store::counter),
    ("message", message),
    ("cache_value", cache_value),
    ("http", http),
    ("configuration", configuration),
    ("checkpoint", store::checkpoint),
    ("expression", store::expression),
    ("emulator_json", store::emulator_json),
];

/// The value of a record is either an event or a rejection from the fixed list. An event that is encoded again stays the same.
fn event(data: &[u8]) {
    const RECORDED: UnixMillis = UnixMillis(7);
    let definitions = of_every_kind();
    let event = match decode_value(Some(data), RECORDED, &definitions) {
        Ok(event) => event,
        Err(rejection) => {
            assert!(tally_core::event::Rejection::REASONS.contains(&rejection.reason()));
            assert!(!rejection.to_string().is_empty());
            return;
        }
    };
    assert_eq!(check_id(event.subject()), Ok(()));
    let definition = definitions.named(event.counter.as_str()).expect("an event's counter is defined");
    let member = event.member().map(|member| UserId::new(member).expect("an event's member is valid"));
    let (direction, said) = match (&event.deed, &member) {
        (Deed::Member { present, .. }, Some(member)) => (*present, Said::Member(member)),
        (Deed::Amount(n), _) => {
            assert!((1..=MAX_AMOUNT).contains(&n.abs()));
            (*n > 0, Said::Amount(u32::try_from(n.abs()).expect("an amount is small")))
        }
        (Deed::Member { .. }, None) => unreachable!("a member's event has a member"),
    };
    let direction = if direction { Direction::Add } else { Direction::Remove };
    let written = encode(definition, event.subject(), direction, said, None, event.at)
        .expect("it was said, so there is a way to");
    assert_eq!(decode_value(Some(&written), UnixMillis(0), &definitions), Ok(event));
}

/// A counter of each kind of subject and member, with and without a way to remove.
fn of_every_kind() -> Definitions {
    let entries: Vec<Entry> = serde_json::from_str(include_str!("../../../../core/tests/vectors/counters.json"))
        .expect("it is a list of entries");
    Definitions::new(&entries).expect("they are well formed")
}

/// A text can be parsed as a row key, a key of the counts table or a sort key in only one way.
fn row_key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(key) = text.parse::<RowKey>() {
        assert_eq!(key.to_string(), text);
        assert_eq!(text.rsplit_once('#').map(|(post, _)| post), Some(key.counter.post.as_str()));
        named_once(&key.counter);
    }
    if let Ok(counter) = text.parse::<CounterId>() {
        assert_eq!(counter.stored(), text);
        named_once(&counter);
    }
    if let Some(member) = MemberKey::new(text) {
        assert_eq!((member.as_str(), member.is_cell()), (text, check_id(text).is_err()));
    }
    if let Some(reserved) = ReservedKey::read(text) {
        assert_eq!(reserved.to_string(), text);
        assert_eq!(reserved.is_counted(), MemberKey::new(text).is_some());
    }
}

/// A counter can be recovered from each of its keys, and from its name and kind.
fn named_once(counter: &CounterId) {
    let shard = Shard::new(3).expect("a counter has that many");
    let row = RowKey { counter: counter.clone(), shard };
    assert_eq!(row.to_string().parse(), Ok(row));
    assert_eq!(counter.stored().parse().as_ref(), Ok(counter));
    assert_eq!(CounterName::new(counter.name.as_str(), counter.name.kind()).as_ref(), Ok(&counter.name));
    let cached = CachePrefix::of_tables("test").value(7, counter);
    let (prefix, bare) = cached.split_once('/').expect("a prefix ends in a slash");
    assert_eq!((prefix, bare), ("test", CachePrefix::default().value(7, counter).as_str()));
    let bare = bare.strip_prefix("{7}").expect("the hash slot is the partition's");
    let (name, post) = bare.split_once(':').expect("a colon stands behind the name");
    assert_eq!((name, post), (counter.name.marked(), counter.post.as_str()));
}

/// A cached text is a count or is refused. A count that is written again stays the same.
fn cache_value(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(entry) = text.parse::<cached::Entry>() {
        assert_eq!(entry.to_string().parse(), Ok(entry));
    }
    if let Ok(held) = text.parse::<cached::Held>() {
        assert_eq!(held.to_string().parse(), Ok(held));
    }
}

/// A command line, one argument per line, is either valid or refused with a message.
fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let program = lines.next().unwrap_or_default();
    let args: Vec<&str> = lines.collect();
    match program {
        "consumer" => configured::<tally_consumer::Args>(&args),
        "change-streamer" => configured::<tally_change_streamer::Args>(&args),
        "count-api" => configured::<tally_count_api::Args>(&args),
        _ => configured::<tally_batch_recount::Args>(&args),
    }
}

fn configured<A: Arguments>(line: &[&str]) {
    if let Err(refused) = A::checked(line) {
        assert!(!refused.is_empty(), "an error names what is wrong");
    }
}

/// Turns records into entries as the relay does, and folds them into counts.
pub(super) fn fold(records: &[RawRecord]) {
    let mut counters: BTreeMap<CounterId, Counter> = BTreeMap::new();
    let mut rows: BTreeMap<RowKey, BTreeMap<String, i64>> = BTreeMap::new();
    for (place, raw) in (0..).map(Place::from_stored).zip(records) {
        let Some(entry) = read(raw).as_ref().and_then(changes::Entry::of) else { continue };
        assert!(entry.gain().abs() <= 2 * Weight::MAX);
        let counter = counters.entry(entry.key.counter.clone()).or_default();
        let before = counter.clone();
        if counter.apply(place, Change::Entry(&entry), None).is_err() {
            assert_eq!(*counter, before, "what leaves the range changes nothing");
            continue;
        }
        counter.reach(place.next());
        if let Effect::Weighed { member, .. } = &entry.effect {
            *rows.entry(entry.key.clone()).or_default().entry(member.as_str().to_owned()).or_default() += entry.gain();
        }
    }
    for (key, rows) in rows {
        let counter = &counters[&key.counter];
        assert_eq!(i128::from(counter.part(key.shard)), rows.values().map(|n| i128::from(*n)).sum(), "{key}");
        assert!(counter.adds_up());
    }
}

/// A message of the log is read, or refused with a reason. One that is read stays the same when it is written and read again.
fn message(data: &[u8]) {
    let of = DeploymentId("d".into());
    match Message::read(data, &of) {
        Ok(message) => {
            assert_eq!(Message::read(&message.write(&of), &of), Ok(message.clone()));
            let mut partition = Partition::default();
            partition.take(Place::from_stored(1), UnixMillis(7), &message);
            let flush = partition.flush();
            flush.counters.values().for_each(|pending| _ = flush.apply(None, pending, UnixMillis(7)));
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}

/// An incomplete request is given up soon, since inputs are run one after the other.
const SOON: Duration = Duration::from_millis(100);

/// The first line of the input is the method and the target, and the rest is sent unchanged. The answer is never a server
/// error.
fn http(data: &[u8]) {
    /// It is started once per process.
    static API: OnceLock<(Runtime, SocketAddr, Running)> = OnceLock::new();
    let line = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let rest = data.get(line.len() + 1..).unwrap_or_default();
    let request = [line, b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", rest].concat();
    let (runtime, address, _) = API.get_or_init(|| {
        let runtime = Runtime::new().expect("a runtime starts");
        let mut config = Config::default();
        (config.limits.header_time, config.limits.unread_time) = (SOON, SOON);
        let (address, running) = runtime.block_on(serve(config));
        (runtime, address, running)
    });
    let answer = runtime.block_on(strike(*address, &request, false));
    assert!(status(&answer).is_none_or(|status| status < 500 || status == 501 || status == 505), "{answer:?}");
}

/// Starts a count API over emulated tables, waits until it is ready, and returns its address.
pub(crate) async fn serve(config: Config) -> (SocketAddr, Running) {
    let Store { connection, .. } = Store::start().await;
    Checkpoints::new(&connection).config(None).await.expect("an emulator does not fail");
    let (deployment, topic) = (DeploymentId("fuzz".into()), TopicId("fuzz".into()));
    let log = Log { deployment, partitions: 1, topic, generation: 0 };
    Changes::new(&connection).begin_log(&log).await.expect("an emulator does not fail");
    let ports = Ports::over(&connection);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("a bound port has an address");
    let app = App { listener: Some(listener), ..App::with_ports(None, config, ports) };
    let running = Running::start(app, Host::new("count-api").with_clock(Clock::starting_at(BEGAN)));
    running.ready().await.expect("it becomes ready");
    (address, running)
}
