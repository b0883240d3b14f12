//! Applies an update expression to an item: first all operands are read from the old item, then all paths are written.

use std::collections::BTreeMap;

use super::{Action, Operand, Verb};
use crate::expression::path::{Path, Step};
use crate::value::{Invalid, Item, MAX_DEPTH, NESTED_TOO_DEEP, Value};

const NO_ATTRIBUTE: &str = "The provided expression refers to an attribute that does not exist in the item";
const WRONG_TYPE: &str = "An operand in the update expression has an incorrect data type";
const NO_PARENT: &str = "The document path provided in the update expression is invalid for update";

/// The value of a path after the update.
enum Outcome {
    Value(Value),
    Nothing,
    Unchanged,
}

pub(super) fn apply(actions: &[Action], old: &Item) -> Result<Item, Invalid> {
    let mut writes = Vec::with_capacity(actions.len());
    let mut removals = Vec::new();
    for action in actions {
        match outcome(action, old)? {
            Outcome::Value(value) => writes.push((&action.path, value)),
            Outcome::Nothing => removals.push(&action.path),
            Outcome::Unchanged => check_parent(&action.path, old)?,
        }
    }
    // Indices refer to the old list. Values beyond its end are appended in the order of their indices, and removals go from
    // the end backwards, after nothing else moves.
    writes.sort_by_key(|(path, _)| *path);
    removals.sort();
    let mut item = old.clone();
    for (path, value) in writes {
        if path.steps.len() + value.depth() > MAX_DEPTH {
            return Err(Invalid::new(NESTED_TOO_DEEP));
        }
        write(&mut item, path, Some(value))?;
    }
    for path in removals.into_iter().rev() {
        check_parent(path, old)?;
        if path.find(old).is_some() {
            write(&mut item, path, None)?;
        }
    }
    Ok(item)
}

fn outcome(action: &Action, old: &Item) -> Result<Outcome, Invalid> {
    let existing = action.path.find(old);
    match &action.verb {
        Verb::Set(operand) => operand.evaluate(old).map(Outcome::Value),
        Verb::Remove => Ok(Outcome::Nothing),
        Verb::Add(value) => {
            existing.map_or_else(|| Ok(value.clone()), |existing| sum(existing, value)).map(Outcome::Value)
        }
        Verb::Delete(value) => existing.map_or(Ok(Outcome::Unchanged), |existing| difference(existing, value)),
    }
}

impl Operand {
    fn evaluate(&self, item: &Item) -> Result<Value, Invalid> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::Path(path) => path.find(item).cloned().ok_or_else(|| Invalid::new(NO_ATTRIBUTE)),
            Self::IfNotExists(path, otherwise) => {
                path.find(item).map_or_else(|| otherwise.evaluate(item), |value| Ok(value.clone()))
            }
            Self::ListAppend(operands) => match Self::both(operands, item)? {
                (Value::L(mut list), Value::L(tail)) => {
                    list.extend(tail);
                    Ok(Value::L(list))
                }
                _ => Err(Invalid::new(WRONG_TYPE)),
            },
            Self::Sum(operands) | Self::Difference(operands) => match Self::both(operands, item)? {
                (Value::N(left), Value::N(right)) if matches!(self, Self::Sum(_)) => left.checked_add(right),
                (Value::N(left), Value::N(right)) => left.checked_sub(right),
                _ => Err(Invalid::new(WRONG_TYPE)),
            }
            .map(Value::N),
        }
    }

    fn both([left, right]: &[Self; 2], item: &Item) -> Result<(Value, Value), Invalid> {
        Ok((left.evaluate(item)?, right.evaluate(item)?))
    }
}

fn sum(existing: &Value, added: &Value) -> Result<Value, Invalid> {
    match (existing, added) {
        (Value::N(existing), Value::N(added)) => existing.checked_add(*added).map(Value::N),
        (Value::Set(one), Value::Set(other)) if existing.type_code() == added.type_code() => {
            Ok(Value::Set(one | other))
        }
        _ => Err(Invalid::new(WRONG_TYPE)),
    }
}

/// The rest of a set. An empty set removes its attribute.
fn difference(existing: &Value, deleted: &Value) -> Result<Outcome, Invalid> {
    match (existing, deleted) {
        (Value::Set(one), Value::Set(other)) if existing.type_code() == deleted.type_code() => {
            let left = one - other;
            Ok(if left.is_empty() { Outcome::Nothing } else { Outcome::Value(Value::Set(left)) })
        }
        _ => Err(Invalid::new(WRONG_TYPE)),
    }
}

/// Refuses a path whose parent does not exist.
fn check_parent(path: &Path, item: &Item) -> Result<(), Invalid> {
    let Some((last, way)) = path.steps.split_last() else { return Ok(()) };
    let parent = Path { root: path.root.clone(), steps: way.to_vec() };
    match (parent.find(item), last) {
        (Some(Value::M(_)), Step::Field(_)) | (Some(Value::L(_)), Step::Index(_)) => Ok(()),
        _ => Err(Invalid::new(NO_PARENT)),
    }
}

/// The value that contains the last step of a path.
fn parent<'a>(item: &'a mut Item, path: &Path) -> Option<&'a mut Value> {
    let (_, way) = path.steps.split_last()?;
    way.iter().try_fold(item.0.get_mut(&path.root)?, |value, step| match (value, step) {
        (Value::M(map), Step::Field(name)) => map.get_mut(name),
        (Value::L(list), Step::Index(index)) => list.get_mut(*index),
        _ => None,
    })
}

/// Sets or removes the value at a path. An index after the end of a list appends.
fn write(item: &mut Item, path: &Path, value: Option<Value>) -> Result<(), Invalid> {
    let set = |map: &mut BTreeMap<String, Value>, name: &String, value| match value {
        Some(value) => map.insert(name.clone(), value),
        None => map.remove(name),
    };
    let Some(last) = path.steps.last() else {
        set(&mut item.0, &path.root, value);
        return Ok(());
    };
    match (parent(item, path), last) {
        (Some(Value::M(map)), Step::Field(name)) => drop(set(map, name, value)),
        (Some(Value::L(list)), Step::Index(index)) => match (list.get_mut(*index), value) {
            (Some(element), Some(value)) => *element = value,
            (None, Some(value)) => list.push(value),
            (Some(_), None) => drop(list.remove(*index)),
            (None, None) => {}
        },
        _ => return Err(Invalid::new(NO_PARENT)),
    }
    Ok(())
}
