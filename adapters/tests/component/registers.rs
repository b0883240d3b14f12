//! Tests the writes to the table `likes`, over the emulator: rows, and cells (the rows of sums, each added to by one
//! Kafka partition). They show the effect of each write, of repeated and failed ones, and that none is sent late.

mod cells;
mod members;
mod signing;

use std::sync::Arc;

use serde_json::{Value, json};
use tally_adapters::dynamodb::claims::Confirmed;
use tally_adapters::dynamodb::registers::Registers;
use tally_core::ids::{Region, UserId};
use tally_core::ports::Outcome;
use tally_core::register::{Answer, Change, Member, Row, Version, Write};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_service::Clock;
use tally_testkit::{BEGAN, Store, write_all};

const TABLE: &str = "likes";

/// When tombstones expire, in seconds: a day after every test begins.
const GONE: u64 = BEGAN.0 / 1_000 + 24 * 3_600;

fn version(offset: u64) -> Version {
    Version::new(2, true, Offset(offset))
}

fn write_of(member: &str, version: Version, change: Change) -> Arc<Write> {
    let row = Row { key: "p#3".parse().unwrap(), member: UserId::new(member).unwrap() };
    Arc::new(Write { row, version, change })
}

fn like(member: &str, offset: u64) -> Arc<Write> {
    let change = Change::Put(UnixMillis(1_000 + offset).into());
    write_of(member, version(offset), change)
}

fn like_from(member: &str, offset: u64, region: &str) -> Arc<Write> {
    let change = Change::Put(Member { region: Region::new(region), ..UnixMillis(1_000 + offset).into() });
    write_of(member, version(offset), change)
}

fn unlike(member: &str, offset: u64) -> Arc<Write> {
    write_of(member, version(offset), Change::Remove)
}

async fn write(registers: &Registers, write: Arc<Write>) -> Outcome<Answer> {
    let [written] = write_all(registers, &[write], GONE, confirmed()).await.try_into().unwrap();
    written
}

/// The confirmation of a consumer whose claim was confirmed just now.
fn confirmed() -> Confirmed {
    Confirmed::now(Clock::starting_at(BEGAN))
}

/// The stored row of a member, without its key.
async fn stored(store: &Store, member: &str) -> Value {
    let key = json!({"pk": {"S": "p#3"}, "user_id": {"S": member}});
    let mut row = store.item(TABLE, key).await;
    if let Some(row) = row.as_object_mut() {
        row.retain(|name, _| name != "pk" && name != "user_id");
    }
    row
}

/// The row of a like without a region.
fn liked(offset: u64) -> Value {
    let at = (1_000 + offset).to_string();
    json!({"post_id": {"S": "p"}, "liked_at": {"N": at}, "v": {"N": version(offset).to_string()}})
}

fn tombstone(offset: u64) -> Value {
    json!({"post_id": {"S": "p"}, "gone": {"N": GONE.to_string()}, "v": {"N": version(offset).to_string()}})
}

/// An empty store and its rows.
async fn start() -> (Store, Registers) {
    let store = Store::start().await;
    let registers = Registers::new(&store.connection);
    (store, registers)
}
