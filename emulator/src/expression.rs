//! Parses and evaluates DynamoDB's expressions: conditions, updates, projections and key conditions on one item. It
//! also parses PartiQL statements, and translates them into items, conditions and updates.

mod condition;
mod key_condition;
mod parser;
pub(crate) mod partiql;
mod path;
mod placeholders;
mod projection;
#[cfg(test)]
mod tests;
mod token;
mod update;
mod words;

pub(crate) use self::condition::{Comparator, Condition};
pub(crate) use self::key_condition::{KeyCondition, KeyRange, RangeCondition};
pub(crate) use self::partiql::Statement;
pub(crate) use self::placeholders::Placeholders;
pub(crate) use self::projection::Projection;
pub(crate) use self::update::Update;
