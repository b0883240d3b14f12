//! Document paths in expressions, such as `map.name[2]`: the way from an item to a value inside it.

use std::fmt;

use crate::value::{Item, Value};

pub(super) const MAX_PATH_LEVELS: usize = 32;
pub(super) const MAX_INDEX: usize = i32::MAX as usize;

/// A top-level attribute, and the steps from there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    pub(super) root: String,
    pub(super) steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// `.name` of a map.
    Field(String),
    /// `[index]` of a list.
    Index(usize),
}

impl Path {
    /// The path of a top-level attribute.
    pub(super) fn of(attribute: &str) -> Self {
        Self { root: attribute.to_owned(), steps: Vec::new() }
    }

    /// Whether this is the path of this top-level attribute.
    pub(super) fn is_attribute(&self, attribute: &str) -> bool {
        self.steps.is_empty() && self.root == attribute
    }

    /// The value at the path, if there is one.
    pub(super) fn find<'a>(&self, item: &'a Item) -> Option<&'a Value> {
        self.steps.iter().try_fold(item.get(&self.root)?, |value, step| match (value, step) {
            (Value::M(map), Step::Field(name)) => map.get(name),
            (Value::L(list), Step::Index(index)) => list.get(*index),
            _ => None,
        })
    }

    /// Why these two paths cannot both be written or projected, if they cannot: one leads through, or to, the value of the
    /// other, or one treats a value as a map, and the other as a list.
    fn clash(&self, other: &Self) -> Option<&'static str> {
        if self.root != other.root {
            return None;
        }
        match self.steps.iter().zip(&other.steps).find(|(one, two)| one != two) {
            None => Some("overlap"),
            Some((Step::Field(_), Step::Index(_)) | (Step::Index(_), Step::Field(_))) => Some("conflict"),
            Some(_) => None,
        }
    }
}

/// The error for paths that clash.
pub(super) fn clash_among(paths: &[&Path]) -> Option<String> {
    for (position, later) in paths.iter().enumerate() {
        for earlier in &paths[..position] {
            if let Some(clash) = earlier.clash(later) {
                return Some(format!(
                    "Two document paths {clash} with each other; must remove or rewrite one of these paths; path one: {earlier}, path two: {later}"
                ));
            }
        }
    }
    None
}

impl fmt::Display for Path {
    /// Formats a path as in DynamoDB's error messages: `[a, b, [0]]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}", self.root)?;
        for step in &self.steps {
            match step {
                Step::Field(name) => write!(f, ", {name}")?,
                Step::Index(index) => write!(f, ", [{index}]")?,
            }
        }
        f.write_str("]")
    }
}
