//! PartiQL, DynamoDB's SQL: parses INSERT, UPDATE, DELETE and SELECT, and translates them into the items, updates and
//! conditions of the other operations.

mod grammar;
mod parser;
#[cfg(test)]
mod tests;
pub(super) mod token;

use std::borrow::Cow;

use self::token::token_at;
use super::condition::{Comparator, Node, Operand};
use super::parser::{Language, Parser};
use super::path::Path;
use super::token::Token;
use super::{Condition, Update};
use crate::value::{Invalid, Item, Value};

/// A parsed statement, with its parameters in place of each `?`.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) table: String,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Insert(Item),
    Update(Update, Filter),
    Delete(Filter),
    /// The selected parts, or `None` for all.
    Select(Option<Fields>, Filter),
}

/// The parts of an item that a `SELECT` names, each with its name in the result.
#[derive(Clone, Debug)]
pub(crate) struct Fields(Vec<(String, Path)>);

impl Fields {
    /// The selected parts of an item. Absent ones are left out.
    pub(crate) fn project(&self, item: &Item) -> Item {
        self.0.iter().filter_map(|(name, path)| Some((name.as_str(), path.find(item)?.clone()))).collect()
    }
}

impl Statement {
    /// Parses a statement and inserts its parameters.
    pub(crate) fn parse(text: &str, parameters: Vec<Value>) -> Result<Self, Invalid> {
        let mut parser = Parser::new(text, Language::Statement { parameters: parameters.into_iter() });
        let statement = grammar::statement(&mut parser)?;
        parser.finish()?;
        Ok(statement)
    }

    pub(crate) fn reads(&self) -> bool {
        matches!(self.body, Body::Select(..))
    }
}

/// The operation of a statement, as policies and faults name it, and its table. Only the beginning is parsed.
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

/// The conjuncts of a `WHERE` clause.
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

    /// Removes and returns the single value that this attribute must have.
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

    /// The remaining condition.
    pub(crate) fn into_condition(mut self) -> Option<Condition> {
        let node = if self.0.len() > 1 { Node::And(self.0) } else { self.0.pop()? };
        Some(Condition(node))
    }

    /// The item exists, which means that it has this attribute, and the remaining condition holds.
    pub(crate) fn of_an_item(mut self, attribute: &str) -> Condition {
        let exists = Node::Exists(Path::of(attribute));
        if self.0.is_empty() {
            return Condition(exists);
        }
        self.0.insert(0, exists);
        Condition(Node::And(self.0))
    }

    /// The item does not exist, which means that it lacks this attribute, or the remaining condition holds.
    pub(crate) fn of_any_item(self, attribute: &str) -> Option<Condition> {
        let Condition(rest) = self.into_condition()?;
        Some(Condition(Node::Or(vec![Node::NotExists(Path::of(attribute)), rest])))
    }
}

/// The item does not exist, which means that it lacks this attribute.
pub(crate) fn no_item(attribute: &str) -> Condition {
    Condition(Node::NotExists(Path::of(attribute)))
}

/// Whether the node requires that an attribute equals a value.
fn is_equality(node: &Node, attribute: &str) -> bool {
    match node {
        Node::Compare(Operand::Path(path), Comparator::Equal, Operand::Value(_))
        | Node::Compare(Operand::Value(_), Comparator::Equal, Operand::Path(path)) => path.is_attribute(attribute),
        _ => false,
    }
}
