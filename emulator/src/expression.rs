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

pub use self::condition::{Comparator, Condition};
pub use self::key_condition::{KeyCondition, KeyRange, RangeCondition};
pub use self::partiql::Statement;
pub use self::placeholders::Placeholders;
pub use self::projection::Projection;
pub use self::update::Update;
