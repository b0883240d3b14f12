//! Update expressions: SET, REMOVE, ADD and DELETE on one item.

mod apply;
pub(super) mod parse;

use super::Placeholders;
use super::parser;
use super::path::Path;
use super::projection::project;
use crate::value::{Invalid, Item, Value};

/// A parsed `UpdateExpression`.
#[derive(Clone, Debug)]
pub(crate) struct Update(pub(super) Vec<Action>);

/// A change of the value at a path.
#[derive(Clone, Debug)]
pub(super) struct Action {
    pub(super) path: Path,
    pub(super) verb: Verb,
}

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Set(Operand),
    Remove,
    /// Adds to a number or set.
    Add(Value),
    /// Deletes from a set.
    Delete(Value),
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Path(Path),
    Value(Value),
    IfNotExists(Path, Box<Operand>),
    ListAppend(Box<[Operand; 2]>),
    // The grammar allows these two only as the whole right side of an assignment.
    Sum(Box<[Operand; 2]>),
    Difference(Box<[Operand; 2]>),
}

impl Update {
    /// Parses the text, resolves the placeholders, and checks everything that does not depend on the item.
    pub(crate) fn parse(text: &str, placeholders: &mut Placeholders) -> Result<Self, Invalid> {
        parser::parse("UpdateExpression", text, placeholders, parse::clauses).map(Self)
    }

    /// Refuses an update of a key attribute.
    pub(crate) fn refuse_keys(&self, key_names: &[&str]) -> Result<(), Invalid> {
        match self.0.iter().find(|action| key_names.contains(&action.path.root.as_str())) {
            None => Ok(()),
            Some(action) => Err(Invalid::new(format!(
                "One or more parameter values were invalid: Cannot update attribute {}. This attribute is part of the key",
                action.path.root
            ))),
        }
    }

    /// Whether it only removes. Such an update does not create a missing item.
    pub(crate) fn only_removes(&self) -> bool {
        self.0.iter().all(|action| matches!(action.verb, Verb::Remove | Verb::Delete(_)))
    }

    /// The item after the update. Every operand is read from the item before it.
    pub(crate) fn apply(&self, item: &Item) -> Result<Item, Invalid> {
        apply::apply(&self.0, item)
    }

    /// The parts that the update touches: of the old item for `UPDATED_OLD`, of the new one for `UPDATED_NEW`.
    pub(crate) fn touched(&self, item: &Item) -> Item {
        project(&self.0.iter().map(|action| &action.path).collect::<Vec<_>>(), item)
    }
}
