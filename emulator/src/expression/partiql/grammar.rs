//! The grammar of the PartiQL statements INSERT, UPDATE, DELETE and SELECT.

use super::{Body, Fields, Filter, Statement};
use crate::expression::Update;
use crate::expression::condition::parse::condition;
use crate::expression::parser::{Parser, malformed, unsupported};
use crate::expression::path::{Path, Step};
use crate::expression::token::Token;
use crate::expression::update::parse::{remove, set};
use crate::expression::words::is_keyword;
use crate::value::{Invalid, Item};

const NO_TABLE: &str = "Expected identifier for simple path";

pub(super) fn statement(parser: &mut Parser<'_>) -> Result<Statement, Invalid> {
    if parser.eat_keyword("INSERT") {
        insert(parser)
    } else if parser.eat_keyword("UPDATE") {
        update(parser)
    } else if parser.eat_keyword("DELETE") {
        delete(parser)
    } else if parser.eat_keyword("SELECT") {
        select(parser)
    } else {
        Err(parser.unexpected())
    }
}

fn insert(parser: &mut Parser<'_>) -> Result<Statement, Invalid> {
    parser.expect_keyword("INTO")?;
    let table = table(parser)?;
    if !parser.eat_keyword("VALUE") {
        return Err(malformed("Unexpected token after expression"));
    }
    Ok(Statement { table, body: Body::Insert(Item(parser.item()?)) })
}

fn update(parser: &mut Parser<'_>) -> Result<Statement, Invalid> {
    let table = table(parser)?;
    refuse_alias(parser)?;
    let mut actions = Vec::new();
    loop {
        if parser.eat_keyword("SET") {
            actions.extend(parser.list(set)?);
        } else if parser.eat_keyword("REMOVE") {
            actions.extend(parser.list(remove)?);
        } else if actions.is_empty() {
            return Err(parser.unexpected());
        } else {
            break;
        }
    }
    parser.refuse_clashes(&actions.iter().map(|action| &action.path).collect::<Vec<_>>());
    Ok(Statement { table, body: Body::Update(Update(actions), filter(parser)?) })
}

fn delete(parser: &mut Parser<'_>) -> Result<Statement, Invalid> {
    parser.expect_keyword("FROM")?;
    let table = table(parser)?;
    refuse_alias(parser)?;
    Ok(Statement { table, body: Body::Delete(filter(parser)?) })
}

fn select(parser: &mut Parser<'_>) -> Result<Statement, Invalid> {
    let fields = if parser.eat("*") { None } else { Some(fields(parser)?) };
    parser.expect_keyword("FROM")?;
    if parser.peek() == Token::End {
        return Err(parser.unexpected());
    }
    let table = table(parser)?;
    refuse_alias(parser)?;
    let filter = filter(parser)?;
    if parser.peek().is_keyword("ORDER") {
        return Err(unsupported("ORDER BY"));
    }
    Ok(Statement { table, body: Body::Select(fields, filter) })
}

/// Parses a table's name. Indexes are not supported.
fn table(parser: &mut Parser<'_>) -> Result<String, Invalid> {
    let table = parser.identifier(NO_TABLE)?;
    if parser.eat(".") {
        return Err(Invalid::new("Indexes are not supported in statements by this emulator"));
    }
    Ok(table)
}

fn refuse_alias(parser: &Parser<'_>) -> Result<(), Invalid> {
    match parser.peek() {
        Token::Quoted(_) => Err(Invalid::new("Aliasing is not supported")),
        token if token.is_keyword("AS") => Err(Invalid::new("Aliasing is not supported")),
        Token::Word(word) if !is_keyword(word) && !word.eq_ignore_ascii_case("RETURNING") => {
            Err(Invalid::new("Aliasing is not supported"))
        }
        _ => Ok(()),
    }
}

/// Parses an optional `WHERE` clause.
fn filter(parser: &mut Parser<'_>) -> Result<Filter, Invalid> {
    if parser.eat_keyword("WHERE") { Ok(Filter::new(condition(parser)?)) } else { Ok(Filter::default()) }
}

fn fields(parser: &mut Parser<'_>) -> Result<Fields, Invalid> {
    let mut fields: Vec<(String, Path)> = Vec::new();
    for path in parser.list(|parser| parser.path(&[]))? {
        let name = last_name(&path);
        if fields.iter().any(|(earlier, _)| *earlier == name) {
            return Err(Invalid::new(format!("Duplicate identifiers in select clause: {name}")));
        }
        fields.push((name, path));
    }
    Ok(Fields(fields))
}

/// The default name of a part in the result: the last name in its path, with the indexes after it.
fn last_name(path: &Path) -> String {
    let mut name = path.root.clone();
    for step in &path.steps {
        match step {
            Step::Field(field) => name.clone_from(field),
            Step::Index(index) => name.push_str(&format!("[{index}]")),
        }
    }
    name
}
