//! The expression language: conditions, updates, projections and key conditions on one item, and PartiQL statements that use
//! them.

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
