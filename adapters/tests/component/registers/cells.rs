//! Tests the writes of cells: each is the row of a sum, such as views, that one Kafka partition adds to. Each update
//! names the version that it replaces.

use serde_json::{Value, json};
use tally_adapters::dynamodb::registers::{Advanced, CellUpdate, Registers};
use tally_core::fault::Fault;
use tally_core::ids::RowKey;
use tally_core::register::Cell;
use tally_core::topic::Partition;
use tally_emulator::{Fault as Injected, Rule};

use super::{TABLE, confirmed, start, version};

fn partition() -> Partition {
    Partition { topic: "likes".into(), index: 7 }
}

fn key(shard: u16) -> RowKey {
    format!("p#+views.{shard}").parse().unwrap()
}

fn cell(n: i64, to: u64) -> Cell {
    Cell { n, to: version(to) }
}

fn stored_key(shard: u16) -> Value {
    json!({"pk": {"S": format!("p#+views.{shard}")}, "user_id": {"S": "\u{1}cell/likes/7"}})
}

async fn read(registers: &Registers, shard: u16) -> Option<Cell> {
    registers.read_cells(&partition(), &[key(shard)]).await.unwrap().remove(0).unwrap()
}

async fn advance(registers: &Registers, from: Option<Cell>, to: Cell) -> Advanced {
    let update = CellUpdate { key: key(7), from, to };
    registers.advance_cells(&partition(), &[update], confirmed()).await.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cell_is_read_again() {
    let (store, registers) = start().await;
    assert_eq!(advance(&registers, None, cell(5, 3)).await, Advanced::Stored);
    store.call("DeleteItem", json!({"TableName": TABLE, "Key": stored_key(7)})).await;
    assert_eq!(advance(&registers, Some(cell(5, 3)), cell(6, 4)).await, Advanced::Refused(None));
    assert_eq!(read(&registers, 7).await, None);
}

#[tokio::test(start_paused = true)]
async fn cells_are_updated_and_read_independently_and_in_order() {
    let (store, registers) = start().await;
    let update = |shard| CellUpdate { key: key(shard), from: None, to: cell(i64::from(shard), 1) };
    store.faults([Rule::new(Injected::Throttle).on("PartiQLInsert").nth(2)]);
    let advanced = registers.advance_cells(&partition(), &[9, 4, 7].map(update), confirmed()).await;
    assert_eq!((&advanced[0], &advanced[2]), (&Advanced::Stored, &Advanced::Stored));
    assert!(matches!(advanced[1], Advanced::Failed(Fault::Throttled(_))), "{advanced:?}");
    store.edit(TABLE, stored_key(7), "to", json!(null)).await;
    let cells = registers.read_cells(&partition(), &[7, 4, 9].map(key)).await.unwrap();
    assert_eq!((&cells[1], &cells[2]), (&Ok(None), &Ok(Some(cell(9, 1)))));
    let damaged = "refused: table likes, item pk \"p#+views.7\", user_id \"\\u{1}cell/likes/7\": to: missing";
    assert_eq!(cells[0].as_ref().unwrap_err().to_string(), damaged);
}
