//! Checks DynamoDB's conditions before any item is read: the names of functions, and the number and types of their
//! operands. Expressions and PartiQL statements share these checks.

use super::parse::TermKind;
use super::{Comparator, Node, Operand};
use crate::value::Value;

const MAX_IN_OPERANDS: usize = 100;
const TYPES: [&str; 10] = ["S", "SS", "N", "NS", "B", "BS", "BOOL", "NULL", "L", "M"];

/// The name of a function and the number of its operands, if there is such a function.
pub(super) fn arity(name: &str) -> Option<(&'static str, usize)> {
    const FUNCTIONS: [(&str, usize); 6] = [
        ("attribute_exists", 1),
        ("attribute_not_exists", 1),
        ("attribute_type", 2),
        ("begins_with", 2),
        ("contains", 2),
        ("size", 1),
    ];
    FUNCTIONS.into_iter().find(|(known, _)| *known == name)
}

/// Interprets a function call. An error is one of syntax.
pub(super) fn call(name: &str, arguments: Vec<Operand>, refusals: &mut Vec<String>) -> Result<TermKind, String> {
    let (name, arity) = arity(name).ok_or_else(|| format!("Invalid function name; function: {name}"))?;
    let count = arguments.len();
    let mut arguments = arguments.into_iter();
    let (Some(first), second) = (arguments.next().filter(|_| count == arity), arguments.next()) else {
        return Err(format!(
            "Incorrect number of operands for operator or function; operator or function: {name}, number of operands: {count}"
        ));
    };
    let Some(second) = second else { return unary(name, first, refusals) };
    distinct(name, &first, &second, refusals);
    let node = match name {
        "attribute_type" => {
            let code = type_name(&second, refusals);
            Node::Type(first, code)
        }
        "begins_with" => {
            types("begins_with", &[&first, &second], &["S", "B"], refusals);
            Node::BeginsWith(first, second)
        }
        _ => Node::Contains(first, second),
    };
    Ok(TermKind::Function(name, Box::new(node)))
}

fn unary(name: &'static str, argument: Operand, refusals: &mut Vec<String>) -> Result<TermKind, String> {
    if name == "size" {
        types(name, &[&argument], &["S", "B", "SS", "NS", "BS", "L", "M"], refusals);
        return Ok(TermKind::Operand(Operand::Size(Box::new(argument))));
    }
    let Operand::Path(path) = argument else {
        return Err(format!("Operator or function requires a document path; operator or function: {name}"));
    };
    let node = if name == "attribute_exists" { Node::Exists(path) } else { Node::NotExists(path) };
    Ok(TermKind::Function(name, Box::new(node)))
}

fn type_name(operand: &Operand, refusals: &mut Vec<String>) -> String {
    let Operand::Value(Value::S(code)) = operand else {
        let found = match operand {
            Operand::Value(value) => value.type_code(),
            Operand::Size(_) => "N",
            Operand::Path(_) => "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}",
        };
        refusals.push(wrong_type("attribute_type", found));
        return String::new();
    };
    if !TYPES.contains(&code.as_str()) {
        refusals.push(format!(
            "Invalid attribute type name found; type: {code}, valid types: {{B,NULL,SS,BOOL,L,BS,N,NS,S,M}}"
        ));
    }
    code.clone()
}

pub(super) fn comparison(left: &Operand, comparator: Comparator, right: &Operand, refusals: &mut Vec<String>) {
    distinct(comparator.symbol(), left, right, refusals);
    if !matches!(comparator, Comparator::Equal | Comparator::NotEqual) {
        types(comparator.symbol(), &[left, right], &["S", "N", "B"], refusals);
    }
}

pub(super) fn membership(candidates: &[Operand], refusals: &mut Vec<String>) {
    if candidates.len() > MAX_IN_OPERANDS {
        let count = candidates.len();
        refusals.push(format!("The IN operator is provided with too many operands; number of operands: {count}"));
    }
}

pub(super) fn between(operand: &Operand, low: &Operand, high: &Operand, refusals: &mut Vec<String>) {
    types("BETWEEN", &[operand, low, high], &["S", "N", "B"], refusals);
    let (Operand::Value(low), Operand::Value(high)) = (low, high) else { return };
    let rule = match low.order(high) {
        None => "same data type for lower and upper bounds",
        Some(order) if order.is_gt() => "upper bound to be greater than or equal to lower bound",
        Some(_) => return,
    };
    let shown = |value: &Value| match value {
        Value::S(text) => format!("AttributeValue: {{S:{text}}}"),
        Value::N(number) => format!("AttributeValue: {{N:{number}}}"),
        other => format!("AttributeValue: {{{}}}", other.type_code()),
    };
    refusals.push(format!(
        "The BETWEEN operator requires {rule}; lower bound operand: {}, upper bound operand: {}",
        shown(low),
        shown(high)
    ));
}

fn distinct(operator: &str, left: &Operand, right: &Operand, refusals: &mut Vec<String>) {
    if let (Operand::Path(left), Operand::Path(right)) = (left, right)
        && left == right
    {
        refusals.push(format!(
            "The first operand must be distinct from the remaining operands for this operator or function; operator: {operator}, first operand: {left}"
        ));
    }
}

/// Refuses literal operands of other types than these. The type of a path is only known with the item.
fn types(operator: &str, operands: &[&Operand], types: &[&str], refusals: &mut Vec<String>) {
    for operand in operands {
        let found = match operand {
            Operand::Path(_) => continue,
            Operand::Value(value) => value.type_code(),
            Operand::Size(_) => "N",
        };
        if !types.contains(&found) {
            return refusals.push(wrong_type(operator, found));
        }
    }
}

pub(in crate::expression) fn wrong_type(operator: &str, found: &str) -> String {
    format!("Incorrect operand type for operator or function; operator or function: {operator}, operand type: {found}")
}
