//! The grammar of the four statements.

use super::parser::{Call, Parser, malformed};
use super::{Body, Fields, Filter, Returning, Statement};
use crate::expression::condition::parse::condition;
use crate::expression::path::{Path, Step, clash_among};
use crate::expression::token::Token;
use crate::expression::update::{self, Expression, Operand, Verb};
use crate::expression::words::is_keyword;
use crate::value::{Invalid, Value};

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
    } else if parser.peek().is_keyword("EXISTS") {
        Err(Invalid::new(super::EXISTS))
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
    let item = parser.item()?;
    if parser.peek().is_keyword("RETURNING") {
        return Err(Invalid::new("RETURNING is not supported in INSERT"));
    }
    Ok(Statement { table, body: Body::Insert(item.into()) })
}

fn update(parser: &mut Parser<'_>) -> Result<Statement, Invalid> {
    let table = table(parser)?;
    refuse_alias(parser)?;
    let mut actions = Vec::new();
    loop {
        if parser.eat_keyword("SET") {
            actions.extend(parser.list(assignment)?);
        } else if parser.eat_keyword("REMOVE") {
            actions.extend(
                parser.list(|parser| Ok(update::Action { path: parser.document_path()?, verb: Verb::Remove }))?,
            );
        } else if actions.is_empty() {
            return Err(parser.unexpected());
        } else {
            break;
        }
    }
    let clash = clash_among(&actions.iter().map(|action| &action.path).collect::<Vec<_>>());
    parser.refusals.extend(clash);
    let filter = filter(parser)?;
    let returning = returning(parser)?;
    Ok(Statement { table, body: Body::Update(crate::expression::Update(actions), filter, returning) })
}

fn delete(parser: &mut Parser<'_>) -> Result<Statement, Invalid> {
    parser.expect_keyword("FROM")?;
    let table = table(parser)?;
    refuse_alias(parser)?;
    let filter = filter(parser)?;
    let returning = returning(parser)?;
    if let Some(Returning { all, new }) = returning.filter(|asked| !asked.all || asked.new) {
        let (all, new) = (if all { "ALL" } else { "MODIFIED" }, if new { "NEW" } else { "OLD" });
        parser.refusals.push(format!(
            "Invalid returning clause: RETURNING {all} {new} *. Only RETURNING ALL OLD * is allowed in DELETE statements."
        ));
    }
    Ok(Statement { table, body: Body::Delete(filter, returning) })
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
        return Err(Invalid::new("ORDER BY is not supported by this emulator"));
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
        Token::Word(word) if !is_keyword(word) && !token_is_clause(word) => {
            Err(Invalid::new("Aliasing is not supported"))
        }
        _ => Ok(()),
    }
}

/// Whether a word begins a clause and is therefore not an alias.
fn token_is_clause(word: &str) -> bool {
    word.eq_ignore_ascii_case("RETURNING")
}

/// Parses an optional `WHERE` clause.
fn filter(parser: &mut Parser<'_>) -> Result<Filter, Invalid> {
    if parser.eat_keyword("WHERE") { Ok(Filter::new(condition(parser)?)) } else { Ok(Filter::default()) }
}

/// Parses `RETURNING (ALL | MODIFIED) (OLD | NEW) *`.
fn returning(parser: &mut Parser<'_>) -> Result<Option<Returning>, Invalid> {
    if !parser.eat_keyword("RETURNING") {
        return Ok(None);
    }
    let all = either(parser, "ALL", "MODIFIED")?;
    let new = either(parser, "NEW", "OLD")?;
    if !parser.eat("*") {
        return Err(Invalid::new("Expected '*' after ( MODIFIED | ALL ) ( NEW | OLD ) in RETURNING clause"));
    }
    Ok(Some(Returning { all, new }))
}

/// Consumes one of two keywords, and returns whether it was the first.
fn either(parser: &mut Parser<'_>, one: &str, other: &str) -> Result<bool, Invalid> {
    if parser.eat_keyword(one) { Ok(true) } else { parser.expect_keyword(other).map(|()| false) }
}

fn fields(parser: &mut Parser<'_>) -> Result<Fields, Invalid> {
    let mut fields: Vec<(String, Path)> = Vec::new();
    for path in parser.list(Parser::document_path)? {
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

fn assignment(parser: &mut Parser<'_>) -> Result<update::Action, Invalid> {
    let path = parser.document_path()?;
    parser.expect("=")?;
    if let Some(call) = parser.call() {
        return match call.name.as_str() {
            "set_add" => set_change(parser, path, &call, Verb::Add),
            "set_delete" => set_change(parser, path, &call, Verb::Delete),
            _ => {
                let operand = list_append(parser, &call)?;
                Ok(update::Action { path, verb: Verb::Set(Expression::Operand(operand)) })
            }
        };
    }
    let first = operand(parser)?;
    let (sign, node): (_, fn(Operand, Operand) -> Expression) = match parser.peek() {
        Token::Symbol("+") => ("+", Expression::Sum),
        Token::Symbol("-") => ("-", Expression::Difference),
        _ => return Ok(update::Action { path, verb: Verb::Set(Expression::Operand(first)) }),
    };
    parser.advance();
    let second = operand(parser)?;
    parser.refusals.extend(update::parse::misfit(sign, "N", [&first, &second]));
    Ok(update::Action { path, verb: Verb::Set(node(first, second)) })
}

fn operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    if let Some(call) = parser.call() {
        return list_append(parser, &call);
    }
    Ok(match parser.value()? {
        Some(value) => Operand::Value(value),
        None => Operand::Path(parser.document_path()?),
    })
}

/// Parses the arguments of the only function that an assignment may contain.
fn list_append(parser: &mut Parser<'_>, call: &Call) -> Result<Operand, Invalid> {
    if call.name != "list_append" {
        return Err(parser.unrecognized(call));
    }
    let arguments = parser.parenthesised(|parser| parser.list(operand))?;
    let count = arguments.len();
    let Ok([head, tail]) = <[Operand; 2]>::try_from(arguments) else {
        return Err(Invalid::new(format!(
            "Incorrect number of operands for operator or function; operator or function: list_append, number of operands: {count}"
        )));
    };
    parser.refusals.extend(update::parse::misfit("list_append", "L", [&head, &tail]));
    Ok(Operand::ListAppend(Box::new(head), Box::new(tail)))
}

/// Parses `set_add(path, set)` or `set_delete(path, set)` of the assigned path.
fn set_change(
    parser: &mut Parser<'_>,
    path: Path,
    call: &Call,
    verb: fn(Value) -> Verb,
) -> Result<update::Action, Invalid> {
    let name = call.name.to_ascii_uppercase();
    let arguments = parser.parenthesised(|parser| parser.list(operand))?;
    let Ok([first, second]) = <[Operand; 2]>::try_from(arguments) else {
        return Err(parser.refused_at(format_args!("{name} must have exactly two arguments"), call.at, call.length));
    };
    if !matches!(first, Operand::Path(first) if first == path) {
        let reason = format_args!("The first argument to {name} must equal the assignment value");
        return Err(parser.refused_at(reason, call.at, call.length));
    }
    match second {
        Operand::Value(set @ (Value::Ss(_) | Value::Ns(_) | Value::Bs(_))) => {
            Ok(update::Action { path, verb: verb(set) })
        }
        _ => Err(Invalid::new(format!("The second argument to {name} must be a value with type SET"))),
    }
}
