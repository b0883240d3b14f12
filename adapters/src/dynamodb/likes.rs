//! The likes table: rows read, and the markers beside them. [`Registers`](super::registers::Registers) writes the rows.

mod markers;
mod remains;
mod rows;

pub use markers::Markers;
pub use remains::Remains;
pub use rows::{Like, MemberRow, Rows, ScannedRow};

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{Item, item};
use super::names::{PK, likes};

fn row_key(pk: String, user: AttributeValue) -> Item {
    item([(PK, AttributeValue::S(pk)), (likes::USER_ID, user)])
}
