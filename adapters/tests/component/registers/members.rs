//! Rows of members: the newest event decides, whatever is stored and in whatever order writes arrive.

use std::time::Duration;

use serde_json::{Value, json};
use tally_adapters::dynamodb::registers::Registers;
use tally_core::changes::Entry;
use tally_core::fault::Fault;
use tally_core::register::{Answer, Change, Member, Progress, Version, Write};
use tally_core::tally::Record;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_emulator::Config;
use tally_testkit::{BEGAN, Store};

use super::{
    GONE, TABLE, confirmed, key, like, like_from, liked, start, stored, tombstone, unlike, version, write, write_all,
    write_of,
};
use crate::rows::{streamed, versions};

#[tokio::test(start_paused = true)]
async fn versions_are_compared_as_numbers_across_generations_and_partitioners() {
    let (store, registers) = start().await;
    let at = |generation, routed, offset| {
        let change = Change::Put(UnixMillis(0).into());
        write_of("u", Version::new(generation, routed, Offset(offset)), change)
    };
    let most = (1 << 48) - 1;
    let rising = [(0, false, 9), (0, false, 10), (0, true, 9), (0, true, most), (1, false, 0), (32_767, true, most)];
    for (generation, routed, offset) in rising {
        assert_eq!(
            write(&registers, at(generation, routed, offset)).await,
            Ok(Answer::Stored),
            "{generation} {offset}"
        );
    }
    assert_eq!(stored(&store, "u").await["v"]["N"], json!(u64::MAX.to_string()));
    assert_eq!(write(&registers, at(1, true, 5)).await, Ok(Answer::Older(Version::new(32_767, true, Offset(most)))));
}

#[tokio::test(start_paused = true)]
async fn a_stream_entry_has_both_versions_a_tombstone_weighs_nothing_and_a_like_again_adds_one() {
    let (store, registers) = start().await;
    let mut deltas = Vec::new();
    for event in [unlike("u", 1), like("u", 2), like("u", 3), unlike("u", 4), unlike("u", 5), like("u", 6)] {
        assert_eq!(write(&registers, event).await, Ok(Answer::Stored));
        deltas.push(streamed(&store).await.iter().map(Record::delta).sum::<i64>());
    }
    assert_eq!(deltas, [0, 1, 1, 0, 0, 1]);
    let v = |offset| Some(version(offset));
    assert_eq!(versions(&store).await, [[v(1), v(2)], [v(3), v(4)], [v(5), v(6)]], "what weighs as before is no entry");
}

#[tokio::test(start_paused = true)]
async fn the_store_deletes_an_expired_tombstone_but_never_a_row_that_was_liked_again() {
    let (store, registers) = start().await;
    let gone = BEGAN.0 / 1_000 + 3_600;
    for event in [like("u", 1), unlike("u", 2), like("w", 3), unlike("w", 4), like("w", 5)] {
        assert_eq!(write_all(&registers, &[event], gone, confirmed()).await, [Ok(Answer::Stored)]);
    }
    tokio::time::advance(Duration::from_secs(3_599)).await;
    assert_eq!(stored(&store, "u").await["gone"]["N"], json!(gone.to_string()));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!((stored(&store, "u").await, stored(&store, "w").await), (json!(null), liked(5)));
    let records = streamed(&store).await;
    assert_eq!(records.iter().filter_map(Entry::of).count(), 5, "the relay sends nothing of a deleted tombstone");
    assert_eq!(records.iter().map(Record::delta).sum::<i64>(), 1);
    assert_eq!(write(&registers, like("u", 6)).await, Ok(Answer::Stored));
}

/// The row that a write leaves.
fn row_of(write: &Write) -> Value {
    let offset = write.version.offset().0;
    match &write.change {
        Change::Put(Member { region: Some(region), .. }) => {
            let mut row = liked(offset);
            row["region"] = json!({"S": region.as_str()});
            row
        }
        Change::Put(_) => liked(offset),
        Change::Remove => tombstone(offset),
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_can_contain_every_kind_of_write_on_every_kind_of_row() {
    let (store, registers) = start().await;
    let events = |row: &str| {
        [
            like(&format!("{row}0"), 8),
            unlike(&format!("{row}1"), 8),
            like(&format!("{row}2"), 10),
            unlike(&format!("{row}3"), 10),
            like_from(&format!("{row}4"), 10, "us"),
        ]
    };
    let writes = ["absent", "liked", "gone"].map(events).concat();
    let before = writes[5..].iter().map(|write| {
        let member = &write.row.member;
        if member.starts_with("liked") { like_from(member, 9, "eu") } else { unlike(member, 9) }
    });
    let before: Vec<_> = before.collect();
    assert_eq!(write_all(&registers, &before, GONE, confirmed()).await, vec![Ok(Answer::Stored); 10]);
    let written = write_all(&registers, &writes, GONE, confirmed()).await;
    for (nth, (write, written)) in writes.iter().zip(written).enumerate() {
        let newer = nth.checked_sub(5).map(|nth| &before[nth]).filter(|stood| stood.version > write.version);
        let answer = newer.map_or(Answer::Stored, |stood| Answer::Older(stood.version));
        assert_eq!(written, Ok(answer), "{write:?}");
        assert_eq!(stored(&store, &write.row.member).await, row_of(newer.unwrap_or(write)), "{write:?}");
    }
    assert_eq!(store.requests("BatchExecuteStatement"), 4, "two each time");
}

#[tokio::test(start_paused = true)]
async fn first_likes_need_one_request_and_an_empty_list_none() {
    let (store, registers) = start().await;
    let writes: Vec<_> = (0..Progress::STATEMENTS).map(|n| like(&n.to_string(), 1)).collect();
    assert_eq!(write_all(&registers, &writes, GONE, confirmed()).await, vec![Ok(Answer::Stored); 25]);
    assert_eq!(write_all(&registers, &[], GONE, confirmed()).await, []);
    assert_eq!(store.requests("BatchExecuteStatement"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_without_a_version_is_named_and_not_overwritten() {
    let (store, registers) = start().await;
    assert_eq!(write(&registers, like("u", 1)).await, Ok(Answer::Stored));
    store.edit(TABLE, key("u"), "v", json!(null)).await;
    for event in [like("u", 2), unlike("u", 2)] {
        let written = write(&registers, event).await;
        let Err(fault) = &written else { panic!("{written:?}") };
        let message = "refused: table likes, item pk \"p#3\", user_id \"u\", post_id \"p\": v: missing";
        assert_eq!((fault.class(), fault.to_string().as_str()), ("poison", message));
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_like_costs_one_write_unit_and_replacing_a_row_two() {
    let store = Store::with(Config { key_write_units: Some(20), ..Config::default() }).await;
    let registers = Registers::new(&store.connection);
    for (offset, members, paid) in [(1, 25, 20), (2, 12, 8)] {
        tokio::time::advance(Duration::from_secs(2)).await;
        let writes: Vec<_> = (0..members).map(|n| like(&n.to_string(), offset)).collect();
        let mut stored = 0;
        for written in write_all(&registers, &writes, GONE, confirmed()).await {
            match written {
                Ok(Answer::Stored) => stored += 1,
                written => assert!(matches!(written, Err(Fault::Throttled(_))), "{written:?}"),
            }
        }
        assert_eq!(stored, paid, "twenty units: of the second ones, twelve find the rows that are there");
    }
}
