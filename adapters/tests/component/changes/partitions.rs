//! Tests what is stored for each partition of the log of changes: its standing, which says up to when all changes are
//! counted, and the position of its next reader. An older position never replaces a newer one, and a standing replaces
//! only the one that it was compared with.

use serde_json::json;
use tally_core::cached::StandingAt;
use tally_core::changes::{Body, Filter, LossNumber, Message, Opened, Opening, Place, Standing};
use tally_core::fault::Fault;
use tally_core::fold::{Mark, Position, ReadTo, Stated};
use tally_core::milestone::Ladder;
use tally_core::topic::Offset;
use tally_testkit::BEGAN;

use super::{TABLE, key, start};

fn at(offset: u64) -> Place {
    Place::new(1, Offset(offset))
}

/// The standing at an offset.
fn standing(offset: u64) -> StandingAt {
    let standing = Standing { as_of: Some(BEGAN), loss: Some(at(offset)), open: [LossNumber(offset)].into() };
    StandingAt { at: at(offset), standing }
}

/// A statement with that standing, after `revision` statements.
pub(crate) fn stated(offset: u64, revision: u64) -> Stated {
    let read = Some(ReadTo { at: at(offset + 1), last: Mark::from_stored(u64::MAX) });
    Stated { standing: standing(offset), last: Some(Mark::from_stored(offset)), read, revision }
}

/// A position at an offset, with a filter that knows a stream shard and a loss.
pub(crate) fn position(offset: u64) -> Position {
    let mut filter = Filter::default();
    let opening = Opening { shard: "2026/a".into(), at: Some(offset.into()), fed: BEGAN };
    let message = Message { read: BEGAN, body: Body::Opened(Opened { shards: vec![opening], ended: Vec::new() }) };
    filter.take(at(offset), BEGAN, &message, |_, _| {});
    filter.jump(at(offset), BEGAN);
    Position { at: at(offset), filter, ladder: Ladder::default(), last: Some(Mark::from_stored(offset)) }
}

#[tokio::test(start_paused = true)]
async fn an_older_position_never_replaces_a_newer_one() {
    let (_store, changes) = start().await;
    assert_eq!(changes.position(3).await, Ok(None));
    for (offset, stored) in [(5, true), (5, false), (4, false), (6, true), (0, false)] {
        assert_eq!(changes.store_position(3, &position(offset)).await, Ok(stored), "{offset}");
    }
    assert_eq!((changes.position(3).await, changes.position(2).await), (Ok(Some(position(6))), Ok(None)));
    let next_generation = Position { at: Place::new(2, Offset(0)), ..position(0) };
    let stored = changes.store_position(3, &next_generation).await;
    assert_eq!(stored, Ok(true), "a later generation is behind every offset");
}

#[tokio::test(start_paused = true)]
async fn a_statement_only_replaces_the_one_that_it_was_compared_with() {
    let (_store, changes) = start().await;
    assert_eq!(changes.stated(3).await, Ok(None));
    assert_eq!(changes.state(3, &stated(5, 2)).await, Ok(Err(None)), "there is none to replace");
    assert_eq!(changes.state(3, &stated(5, 1)).await, Ok(Ok(())));
    assert_eq!(changes.state(3, &stated(6, 1)).await, Ok(Err(Some(stated(5, 1)))), "another fold was the first");
    for _ in 0..2 {
        assert_eq!(changes.state(3, &stated(6, 2)).await, Ok(Ok(())), "a repetition finds itself");
    }
    assert_eq!(changes.state(3, &stated(7, 2)).await, Ok(Err(Some(stated(6, 2)))));
    assert_eq!((changes.stated(3).await, changes.stated(4).await), (Ok(Some(stated(6, 2))), Ok(None)));
}

#[tokio::test(start_paused = true)]
async fn an_empty_standing_and_a_ladder_are_read_as_they_were_stored() {
    let (_store, changes) = start().await;
    assert_eq!(changes.state(0, &stated(4, 1)).await, Ok(Ok(())));
    let standing = StandingAt { at: at(5), standing: Standing::default() };
    let nothing = Stated { standing, revision: 2, ..Stated::default() };
    assert_eq!(changes.state(0, &nothing).await, Ok(Ok(())));
    assert_eq!(changes.stated(0).await, Ok(Some(nothing)), "nothing of the one before is left");
    for (offset, ladder) in [(1, "every:1000"), (2, "10,100,1000")] {
        let position = Position { ladder: ladder.parse().unwrap(), ..position(offset) };
        assert_eq!(changes.store_position(0, &position).await, Ok(true));
        assert_eq!(changes.position(0).await, Ok(Some(position)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_standings_of_a_deployment_take_one_request_per_hundred_partitions() {
    let (store, changes) = start().await;
    for partition in [0, 99, 149, 150] {
        assert_eq!(changes.state(partition, &stated(u64::from(partition) + 1, 1)).await, Ok(Ok(())));
    }
    let found = changes.standings(150).await.unwrap();
    assert_eq!(found, [(0, standing(1)), (99, standing(100)), (149, standing(150))].into());
    assert_eq!(store.requests("BatchGetItem"), 2);
    assert_eq!(changes.state(0, &stated(9, 2)).await, Ok(Ok(())));
    assert_eq!(changes.standings(1).await.unwrap()[&0], standing(9), "what was just written is read");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_position_is_poison_and_is_named() {
    let (store, changes) = start().await;
    changes.store_position(3, &position(5)).await.unwrap();
    assert_eq!(changes.state(3, &stated(5, 1)).await, Ok(Ok(())));
    for (value, why) in
        [(json!({"S": "{}"}), "it has to be there, in bytes"), (json!({"B": "e30="}), "corrupt deflate")]
    {
        store.edit(TABLE, key("changes/position/3"), "filter", value).await;
        let Err(Fault::Poison(message)) = changes.position(3).await else { panic!("it was read") };
        let named = "table checkpoints, item id \"changes/position/3\": filter: ";
        assert!(message.starts_with(named) && message.contains(why), "{message}");
    }
    store.edit(TABLE, key("changes/standing/3"), "loss", json!({"S": "7"})).await;
    let Err(Fault::Poison(message)) = changes.standings(4).await else { panic!("it was read") };
    assert_eq!(message, "table checkpoints, item id \"changes/standing/3\": loss: not a number");
}
