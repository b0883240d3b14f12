//! DynamoDB's condition and filter expressions: parses them, and decides whether one item fulfils them.

pub(super) mod check;
pub(super) mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use super::Placeholders;
use super::parser;
use super::path::Path;
use crate::number::Number;
use crate::value::{Invalid, Item, Value};

/// A parsed `ConditionExpression` or `FilterExpression`.
#[derive(Clone, Debug)]
pub(crate) struct Condition(pub(super) Node);

#[derive(Clone, Debug)]
pub(super) enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Compare(Operand, Comparator, Operand),
    Between(Operand, Operand, Operand),
    In(Operand, Vec<Operand>),
    Exists(Path),
    NotExists(Path),
    /// The operand, and the required type as a descriptor.
    Type(Operand, String),
    BeginsWith(Operand, Operand),
    Contains(Operand, Operand),
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Path(Path),
    Value(Value),
    Size(Box<Operand>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Condition {
    /// Parses the text, resolves the placeholders, and checks everything that does not depend on the item. `parameter` is
    /// the request parameter that errors name.
    pub(crate) fn parse(parameter: &'static str, text: &str, placeholders: &mut Placeholders) -> Result<Self, Invalid> {
        parser::parse(parameter, text, placeholders, parse::condition).map(Self)
    }

    /// Whether the condition is true for this item. An absent item has no attributes.
    pub(crate) fn holds(&self, item: Option<&Item>) -> bool {
        static ABSENT: Item = Item::new();
        self.0.holds(item.unwrap_or(&ABSENT))
    }

    /// Whether the condition reads this top-level attribute. A filter must not read the key.
    pub(crate) fn reads(&self, attribute: &str) -> bool {
        self.0.reads(attribute)
    }
}

impl Node {
    fn holds(&self, item: &Item) -> bool {
        match self {
            Self::And(all) => all.iter().all(|node| node.holds(item)),
            Self::Or(any) => any.iter().any(|node| node.holds(item)),
            Self::Not(node) => !node.holds(item),
            Self::Compare(left, comparator, right) => comparator.holds(left.read(item), right.read(item)),
            Self::Between(operand, low, high) => {
                let value = operand.read(item);
                Comparator::GreaterOrEqual.holds(value.clone(), low.read(item))
                    && Comparator::LessOrEqual.holds(value, high.read(item))
            }
            Self::In(operand, candidates) => operand
                .read(item)
                .is_some_and(|value| candidates.iter().any(|candidate| candidate.read(item).as_ref() == Some(&value))),
            Self::Exists(path) => path.find(item).is_some(),
            Self::NotExists(path) => path.find(item).is_none(),
            Self::Type(operand, code) => operand.read(item).is_some_and(|value| value.type_code() == code),
            Self::BeginsWith(operand, prefix) => match (operand.read(item), prefix.read(item)) {
                (Some(value), Some(prefix)) => value.begins_with(&prefix),
                _ => false,
            },
            Self::Contains(operand, element) => match (operand.read(item), element.read(item)) {
                (Some(value), Some(element)) => value.contains(&element),
                _ => false,
            },
        }
    }

    fn reads(&self, attribute: &str) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(|node| node.reads(attribute)),
            Self::Not(node) => node.reads(attribute),
            Self::Compare(left, _, right) | Self::BeginsWith(left, right) | Self::Contains(left, right) => {
                left.reads(attribute) || right.reads(attribute)
            }
            Self::Between(operand, low, high) => [operand, low, high].iter().any(|operand| operand.reads(attribute)),
            Self::In(operand, candidates) => {
                operand.reads(attribute) || candidates.iter().any(|operand| operand.reads(attribute))
            }
            Self::Exists(path) | Self::NotExists(path) => path.root == attribute,
            Self::Type(operand, _) => operand.reads(attribute),
        }
    }
}

impl Operand {
    /// The operand's value in this item, borrowed unless it is computed.
    fn read<'a>(&'a self, item: &'a Item) -> Option<Cow<'a, Value>> {
        match self {
            Self::Path(path) => path.find(item).map(Cow::Borrowed),
            Self::Value(value) => Some(Cow::Borrowed(value)),
            Self::Size(operand) => {
                let length = operand.read(item)?.length()?;
                let length = i64::try_from(length).expect("no value is longer than an item");
                Some(Cow::Owned(Value::N(Number::from(length))))
            }
        }
    }

    fn reads(&self, attribute: &str) -> bool {
        match self {
            Self::Path(path) => path.root == attribute,
            Self::Value(_) => false,
            Self::Size(operand) => operand.reads(attribute),
        }
    }
}

impl Comparator {
    /// Compares two values. Values of different types are unequal and have no order; an absent value is unequal to everything.
    pub(crate) fn holds(self, left: Option<Cow<'_, Value>>, right: Option<Cow<'_, Value>>) -> bool {
        let (Some(left), Some(right)) = (left, right) else { return self == Self::NotEqual };
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left.order(&right).is_some_and(Ordering::is_lt),
            Self::LessOrEqual => left.order(&right).is_some_and(Ordering::is_le),
            Self::Greater => left.order(&right).is_some_and(Ordering::is_gt),
            Self::GreaterOrEqual => left.order(&right).is_some_and(Ordering::is_ge),
        }
    }

    /// The comparator with this symbol.
    pub(crate) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "=" => Self::Equal,
            "<>" | "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// The comparator with which the operands can change places.
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}
