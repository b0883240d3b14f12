//! PartiQL statements: each becomes the item, update or condition that the operations of the API have; leaves tables to the operations.

mod condition;
mod grammar;
mod parser;
#[cfg(test)]
mod tests;
mod token;

use std::borrow::Cow;

use self::parser::Statements;
use self::token::token_at;
use super::condition::{Comparator, Node, Operand};
use super::parsing::Parsing;
use super::path::Path;
use super::token::Token;
use super::{Condition, Update};
use crate::value::{Invalid, Item, Value};

const EXISTS: &str = "EXISTS can only be used in ExecuteTransaction write requests.";

/// A parsed statement; its parameters stand where the `?` stood.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) table: String,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Insert(Item),
    Update(Update, Filter, Option<Returning>),
    Delete(Filter, Option<Returning>),
    /// The parts that are asked for; `None` for all.
    Select(Option<Fields>, Filter),
}

/// What `RETURNING` asks for: all attributes or the modified ones, as they are afterwards or were before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Returning {
    pub(crate) all: bool,
    pub(crate) new: bool,
}

/// The parts of an item that a `SELECT` names, each with the name it is shown under.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Vec<(String, Path)>);

impl Fields {
    /// The named parts; what is absent is left out.
    pub(crate) fn project(&self, item: &Item) -> Item {
        self.0.iter().filter_map(|(name, path)| Some((name.as_str(), path.find(item)?.clone()))).collect()
    }
}

impl Statement {
    /// Parses a statement and puts its parameters in.
    pub fn parse(text: &str, parameters: Vec<Value>) -> Result<Self, Invalid> {
        let mut parser = Parsing::new(text, Statements::new(parameters));
        let statement = grammar::statement(&mut parser)?;
        parser.finish()?;
        Ok(statement)
    }

    pub(crate) fn reads(&self) -> bool {
        matches!(self.body, Body::Select(..))
    }
}

/// What a statement does, as policies and faults call it, and the table it does it to. Reads no further than that.
pub(crate) fn target(text: &str) -> Option<(&'static str, Cow<'_, str>)> {
    let first = token_at(text, 0);
    let kinds = [
        ("INSERT", "PartiQLInsert", "INTO"),
        ("UPDATE", "PartiQLUpdate", ""),
        ("DELETE", "PartiQLDelete", "FROM"),
        ("SELECT", "PartiQLSelect", "FROM"),
    ];
    let (_, action, before) = kinds.into_iter().find(|(keyword, ..)| first.token.is_keyword(keyword))?;
    let mut at = first.end;
    loop {
        let lexeme = token_at(text, at);
        at = lexeme.end;
        match lexeme.token {
            Token::End | Token::Stray(_) => return None,
            _ if before.is_empty() => return table_name(lexeme.token).map(|table| (action, table)),
            token if token.is_keyword(before) => {
                return table_name(token_at(text, at).token).map(|table| (action, table));
            }
            _ => {}
        }
    }
}

fn table_name(token: Token<'_>) -> Option<Cow<'_, str>> {
    match token {
        Token::Word(word) => Some(Cow::Borrowed(word)),
        Token::Quoted(text) => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

/// What `WHERE` asks for, all of which must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(Vec<Node>);

impl Filter {
    fn new(node: Node) -> Self {
        let mut filter = Self::default();
        filter.add(node);
        filter
    }

    fn add(&mut self, node: Node) {
        match node {
            Node::And(nodes) => nodes.into_iter().for_each(|node| self.add(node)),
            node => self.0.push(node),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out the one value that this attribute must have.
    pub(crate) fn take_value(&mut self, attribute: &str) -> Result<Option<Value>, Invalid> {
        let mut found: Option<Value> = None;
        for node in self.0.extract_if(.., |node| is_equality(node, attribute)) {
            let (Node::Compare(_, _, Operand::Value(value)) | Node::Compare(Operand::Value(value), ..)) = node else {
                continue;
            };
            if found.as_ref().is_some_and(|earlier| *earlier != value) {
                return Err(Invalid::new(format!(
                    "Multiple conditions on same key {attribute}. Only single item Update/Insert/Delete are supported"
                )));
            }
            found = Some(value);
        }
        Ok(found)
    }

    /// Takes out the values of which this attribute must have one: the one of an equality, or those of an `IN`.
    pub(crate) fn take_values(&mut self, attribute: &str) -> Result<Vec<Value>, Invalid> {
        if let Some(value) = self.take_value(attribute)? {
            return Ok(vec![value]);
        }
        let Some(at) = self.0.iter().position(|node| is_list(node, attribute)) else { return Ok(Vec::new()) };
        let Node::In(_, candidates) = self.0.remove(at) else { return Ok(Vec::new()) };
        let value = |operand| if let Operand::Value(value) = operand { Some(value) } else { None };
        Ok(candidates.into_iter().filter_map(value).collect())
    }

    /// What is left of it.
    pub(crate) fn into_condition(mut self) -> Option<Condition> {
        let node = if self.0.len() > 1 { Node::And(self.0) } else { self.0.pop()? };
        Some(Condition(node))
    }

    /// That there is an item, which has this attribute, and that the rest holds of it.
    pub(crate) fn of_an_item(mut self, attribute: &str) -> Condition {
        let exists = Node::Exists(Path::of(attribute));
        if self.0.is_empty() {
            return Condition(exists);
        }
        self.0.insert(0, exists);
        Condition(Node::And(self.0))
    }

    /// That there is no item, which would have this attribute, or that the rest holds of it.
    pub(crate) fn of_any_item(self, attribute: &str) -> Option<Condition> {
        let Condition(rest) = self.into_condition()?;
        Some(Condition(Node::Or(vec![Node::NotExists(Path::of(attribute)), rest])))
    }
}

/// That there is no item, which would have this attribute.
pub(crate) fn no_item(attribute: &str) -> Condition {
    Condition(Node::NotExists(Path::of(attribute)))
}

/// Whether this says that an attribute equals a value.
fn is_equality(node: &Node, attribute: &str) -> bool {
    match node {
        Node::Compare(Operand::Path(path), Comparator::Equal, Operand::Value(_))
        | Node::Compare(Operand::Value(_), Comparator::Equal, Operand::Path(path)) => path.is_attribute(attribute),
        _ => false,
    }
}

/// Whether this says that an attribute is one of some values.
fn is_list(node: &Node, attribute: &str) -> bool {
    let Node::In(Operand::Path(path), candidates) = node else { return false };
    path.is_attribute(attribute) && candidates.iter().all(|candidate| matches!(candidate, Operand::Value(_)))
}
