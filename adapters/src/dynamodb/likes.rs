//! The likes table: rows read, and the markers beside them. [`Registers`](super::registers::Registers) writes the rows.

mod markers;
mod present;
mod remains;
mod rows;

pub use markers::Markers;
pub use remains::Remains;
pub use rows::Rows;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{Item, item};
use super::names::{PK, likes};

fn row_key(pk: String, user: AttributeValue) -> Item {
    item([(PK, AttributeValue::S(pk)), (likes::USER_ID, user)])
}
