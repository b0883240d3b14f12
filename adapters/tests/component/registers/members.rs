//! Tests the writes of rows of the table `likes`, one for each member, such as a user who likes a post: the newest
//! event decides, whatever is stored and in whatever order writes arrive. Also requests that fail as a whole.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tally_adapters::dynamodb::registers::Registers;
use tally_core::fault::Fault;
use tally_core::register::{Answer, Change, Member, Version, Write};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_emulator::{Fault as Injected, Rule};

use super::{
    GONE, confirmed, like, like_from, liked, start, stored, tombstone, unlike, version, write, write_all, write_of,
};

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
        let written = write(&registers, at(generation, routed, offset)).await;
        assert_eq!(written, Ok(Answer::Stored), "{generation} {offset}");
    }
    assert_eq!(stored(&store, "u").await["v"]["N"], json!(u64::MAX.to_string()));
    assert_eq!(write(&registers, at(1, true, 5)).await, Ok(Answer::Older(Version::new(32_767, true, Offset(most)))));
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

fn likes(count: usize) -> Vec<Arc<Write>> {
    (0..count).map(|n| like(&n.to_string(), 1)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_has_unknown_outcomes_and_is_not_sent_again() {
    let (store, _) = start().await;
    let registers = Registers::new(&store.repeating(3));
    store.faults([Rule::new(Injected::DropReply).on("BatchExecuteStatement").nth(1)]);
    for written in write_all(&registers, &likes(3), GONE, confirmed()).await {
        assert!(matches!(written, Err(Fault::Transient(_))), "{written:?}");
    }
    assert_eq!(store.requests("BatchExecuteStatement"), 1);
    assert_eq!(write_all(&registers, &likes(3), GONE, confirmed()).await, vec![Ok(Answer::Older(version(1))); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_as_a_whole_is_sent_again_statement_by_statement() {
    let (store, registers) = start().await;
    // Two statements about one row are a validation error, which affects every other statement of their request.
    let writes = [like("u", 1), like("w", 1), like("u", 2)];
    assert_eq!(write_all(&registers, &writes, GONE, confirmed()).await, vec![Ok(Answer::Stored); 3]);
    assert_eq!((stored(&store, "u").await, stored(&store, "w").await), (liked(2), liked(1)));
    assert_eq!(store.requests("BatchExecuteStatement"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_appears_or_disappears_between_two_statements_is_written_from_the_beginning() {
    let (store, registers) = start().await;
    assert_eq!(write(&registers, unlike("u", 1)).await, Ok(Answer::Stored));
    // The tombstone expires while the first statement is under way.
    tokio::time::advance(Duration::from_secs(24 * 3_600 - 1)).await;
    store.faults([Rule::new(Injected::Latency { min_ms: 2_000, max_ms: 2_000 }).on("BatchExecuteStatement").nth(2)]);
    let written = write(&registers, like("u", 2)).await;
    assert!(matches!(written, Err(Fault::Transient(_))), "{written:?}");
    assert_eq!(write(&registers, like("u", 2)).await, Ok(Answer::Stored));
    assert_eq!(stored(&store, "u").await, liked(2));
}
