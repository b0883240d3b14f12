//! Parses the key condition of a Query (a hash key, and optionally a range of sort keys), and matches it with the keys
//! of the table.

use super::condition::{Comparator, Node, Operand};
use super::{Condition, Placeholders};
use crate::value::{Invalid, Value};

/// A parsed `KeyConditionExpression`, not yet matched with a key schema.
#[derive(Clone, Debug)]
pub(crate) struct KeyCondition(Vec<(String, RangeCondition)>);

/// The range of a key condition in a table with a known key schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// The hash key of every selected item.
    pub(crate) hash: Value,
    /// The condition on the sort key, if there is one.
    pub(crate) range: Option<RangeCondition>,
}

/// A condition on the sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RangeCondition {
    /// A comparison other than `<>`.
    Compare(Comparator, Value),
    /// `BETWEEN`, inclusive.
    Between(Value, Value),
    BeginsWith(Value),
}

impl KeyCondition {
    /// Parses the text and resolves the placeholders.
    pub(crate) fn parse(text: &str, placeholders: &mut Placeholders) -> Result<Self, Invalid> {
        let Condition(node) = Condition::parse("KeyConditionExpression", text, placeholders)?;
        let mut conditions = Vec::new();
        collect(node, &mut conditions)?;
        Ok(Self(conditions))
    }

    /// Matches the condition with a key schema. The table checks the types of the values.
    pub(crate) fn resolve(mut self, hash_name: &str, range_name: Option<&str>) -> Result<KeyRange, Invalid> {
        if self.0.len() > 2 {
            return Err(Invalid::new("Conditions can be of length 1 or 2 only"));
        }
        let missed = |name: &str| Invalid::new(format!("Query condition missed key schema element: {name}"));
        let unsupported = || Invalid::new("Query key condition not supported");
        let at = self.0.iter().position(|(name, _)| name == hash_name).ok_or_else(|| missed(hash_name))?;
        let (_, RangeCondition::Compare(Comparator::Equal, hash)) = self.0.swap_remove(at) else {
            return Err(unsupported());
        };
        let range = match (self.0.pop(), range_name) {
            (None, _) => None,
            (Some((name, condition)), Some(range_name)) if name == range_name => Some(condition),
            (Some(_), Some(range_name)) => return Err(missed(range_name)),
            (Some(_), None) => return Err(unsupported()),
        };
        Ok(KeyRange { hash, range })
    }
}

/// Splits a conjunction into one condition per key attribute.
fn collect(node: Node, conditions: &mut Vec<(String, RangeCondition)>) -> Result<(), Invalid> {
    let (name, condition) = match node {
        Node::And(nodes) => return nodes.into_iter().try_for_each(|node| collect(node, conditions)),
        Node::Compare(left, comparator, right) => comparison(left, comparator, right)?,
        Node::Between(operand, low, high) => {
            let name = first_operand("BETWEEN", operand)?;
            (name, RangeCondition::Between(literal(low)?, literal(high)?))
        }
        Node::BeginsWith(operand, prefix) => {
            let name = first_operand("begins_with", operand)?;
            (name, RangeCondition::BeginsWith(literal(prefix)?))
        }
        Node::Or(_) => return Err(no_operator("OR")),
        Node::Not(_) => return Err(no_operator("NOT")),
        Node::In(..) => return Err(no_operator("IN")),
        Node::Exists(_) => return Err(no_operator("attribute_exists")),
        Node::NotExists(_) => return Err(no_operator("attribute_not_exists")),
        Node::Type(..) => return Err(no_operator("attribute_type")),
        Node::Contains(..) => return Err(no_operator("contains")),
    };
    if conditions.iter().any(|(earlier, _)| *earlier == name) {
        return Err(Invalid::new("KeyConditionExpressions must only contain one condition per key"));
    }
    conditions.push((name, condition));
    Ok(())
}

/// A comparison of an attribute with a value, in either order.
fn comparison(left: Operand, comparator: Comparator, right: Operand) -> Result<(String, RangeCondition), Invalid> {
    let flipped = matches!(left, Operand::Value(_));
    let (attribute, value) = if flipped { (right, left) } else { (left, right) };
    let name = match attribute {
        Operand::Value(_) => return Err(invalid_condition("No key attribute specified")),
        attribute => attribute_name(attribute)?,
    };
    let value = literal(value)?;
    if comparator == Comparator::NotEqual {
        return Err(no_operator("<>"));
    }
    Ok((name, RangeCondition::Compare(if flipped { comparator.flipped() } else { comparator }, value)))
}

fn first_operand(operator: &str, operand: Operand) -> Result<String, Invalid> {
    match operand {
        Operand::Value(_) => {
            Err(invalid_condition(&format!("{operator} operator must have the key attribute as its first operand")))
        }
        operand => attribute_name(operand),
    }
}

fn attribute_name(operand: Operand) -> Result<String, Invalid> {
    match operand {
        Operand::Path(path) if path.steps.is_empty() => Ok(path.root),
        Operand::Path(_) => Err(Invalid::new("KeyConditionExpressions cannot have conditions on nested attributes")),
        Operand::Value(_) | Operand::Size(_) => {
            Err(Invalid::new("KeyConditionExpressions cannot contain nested operations"))
        }
    }
}

fn literal(operand: Operand) -> Result<Value, Invalid> {
    match operand {
        Operand::Value(value) => Ok(value),
        Operand::Path(_) => Err(invalid_condition("Multiple attribute names used in one condition")),
        Operand::Size(_) => Err(Invalid::new("KeyConditionExpressions cannot contain nested operations")),
    }
}

fn no_operator(operator: &str) -> Invalid {
    Invalid::new(format!("Invalid operator used in KeyConditionExpression: {operator}"))
}

fn invalid_condition(reason: &str) -> Invalid {
    Invalid::new(format!("Invalid condition in KeyConditionExpression: {reason}"))
}

impl RangeCondition {
    /// The values in the condition, to check their types.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Value> {
        let (first, second) = match self {
            Self::Between(low, high) => (low, Some(high)),
            Self::Compare(_, value) | Self::BeginsWith(value) => (value, None),
        };
        std::iter::once(first).chain(second)
    }
}
