//! The expression language: conditions, updates, projections and key conditions on one item, and PartiQL statements that use
//! them.

mod condition;
mod key_condition;
mod parser;
mod parsing;
pub(crate) mod partiql;
mod path;
mod placeholders;
mod projection;
#[cfg(test)]
mod tests;
mod token;
mod update;
mod words;

use std::fmt;

pub use self::condition::{Comparator, Condition};
pub use self::key_condition::{KeyCondition, KeyRange, RangeCondition};
pub use self::partiql::Statement;
pub use self::placeholders::Placeholders;
pub use self::projection::Projection;
pub use self::update::Update;

/// The request parameter that contains an expression, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Condition,
    Filter,
    KeyCondition,
    Projection,
    Update,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Condition => "ConditionExpression",
            Self::Filter => "FilterExpression",
            Self::KeyCondition => "KeyConditionExpression",
            Self::Projection => "ProjectionExpression",
            Self::Update => "UpdateExpression",
        })
    }
}
