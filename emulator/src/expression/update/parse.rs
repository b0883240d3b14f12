//! The grammar of updates, and the checks that need no item.

use super::{Action, Operand, Verb};
use crate::expression::condition::check::wrong_type;
use crate::expression::condition::parse::Conditions;
use crate::expression::parser::Parser;
use crate::expression::parsing::{Language, Parsing};
use crate::expression::path::Path;
use crate::expression::token::Token;
use crate::value::{Invalid, Value};

const CLAUSES: [&str; 4] = ["SET", "REMOVE", "ADD", "DELETE"];

/// Parses all clauses, each at most once.
pub(super) fn clauses(parser: &mut Parser<'_>) -> Result<Vec<Action>, Invalid> {
    let mut actions = Vec::new();
    let mut seen = Vec::new();
    loop {
        let Some(clause) = CLAUSES.into_iter().find(|clause| parser.peek().is_keyword(clause)) else {
            return Err(parser.unexpected());
        };
        parser.advance();
        if seen.contains(&clause) {
            parser.refuse(format!("The \"{clause}\" section can only be used once in an update expression;"));
        }
        seen.push(clause);
        actions.extend(parser.list(match clause {
            "SET" => set,
            "REMOVE" => remove,
            "ADD" => add,
            _ => delete,
        })?);
        if parser.peek() == Token::End {
            break;
        }
    }
    parser.refuse_clashes(&actions.iter().map(|action| &action.path).collect::<Vec<_>>());
    Ok(actions)
}

fn set(parser: &mut Parser<'_>) -> Result<Action, Invalid> {
    let path = parser.path(&CLAUSES)?;
    parser.expect("=")?;
    parser.language.count_operator()?;
    Ok(Action { path, verb: Verb::Set(right_side(parser)?) })
}

fn remove(parser: &mut Parser<'_>) -> Result<Action, Invalid> {
    parser.language.count_operator()?;
    Ok(Action { path: parser.path(&CLAUSES)?, verb: Verb::Remove })
}

fn add(parser: &mut Parser<'_>) -> Result<Action, Invalid> {
    let (path, value) = path_and_value(parser)?;
    if !matches!(value, Value::N(_)) {
        check_is_set(parser, "ADD", &value);
    }
    Ok(Action { path, verb: Verb::Add(value) })
}

fn delete(parser: &mut Parser<'_>) -> Result<Action, Invalid> {
    let (path, value) = path_and_value(parser)?;
    check_is_set(parser, "DELETE", &value);
    Ok(Action { path, verb: Verb::Delete(value) })
}

fn path_and_value(parser: &mut Parser<'_>) -> Result<(Path, Value), Invalid> {
    parser.language.count_operator()?;
    Ok((parser.path(&CLAUSES)?, parser.value()?))
}

fn check_is_set(parser: &mut Parser<'_>, operator: &str, value: &Value) {
    let found = match value {
        Value::Ss(_) | Value::Ns(_) | Value::Bs(_) => return,
        Value::S(_) => "STRING",
        Value::N(_) => "NUMBER",
        Value::B(_) => "BINARY",
        Value::Bool(_) => "BOOLEAN",
        Value::Null => "NULL",
        Value::L(_) => "LIST",
        Value::M(_) => "MAP",
    };
    parser.refuse(format!(
        "Incorrect operand type for operator or function; operator: {operator}, operand type: {found}"
    ));
}

/// Parses the right side of `=`: an operand, a sum or a difference, with or without parentheses.
fn right_side(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    let first = term(parser)?;
    if matches!(first, Operand::Sum(_) | Operand::Difference(_)) {
        Ok(first)
    } else {
        arithmetic(parser, first, operand)
    }
}

fn term(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    if parser.eat("(") { parser.parenthesised(right_side) } else { unparenthesised(parser) }
}

fn operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    match term(parser)? {
        Operand::Sum(_) | Operand::Difference(_) => Err(parser.unexpected()),
        operand => Ok(operand),
    }
}

fn unparenthesised(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    if let Some(name) = parser.call()? {
        let arguments = parser.parenthesised(|parser| parser.list(operand))?;
        return function(parser, name, arguments);
    }
    Ok(match parser.peek() {
        Token::Value(_) => Operand::Value(parser.value()?),
        _ => Operand::Path(parser.path(&CLAUSES)?),
    })
}

fn function(parser: &mut Parser<'_>, name: &str, arguments: Vec<Operand>) -> Result<Operand, Invalid> {
    if name == "list_append" {
        let is_nested = arguments.len() == 2 && arguments.iter().any(|one| matches!(one, Operand::ListAppend(_)));
        return if is_nested { Err(parser.language.misused(name)) } else { list_append(parser, arguments) };
    }
    if name != "if_not_exists" {
        return Err(parser.invalid(format!("Invalid function name; function: {name}")));
    }
    match pair(parser, name, arguments)? {
        [Operand::Path(path), otherwise] => Ok(Operand::IfNotExists(path, Box::new(otherwise))),
        _ => {
            Err(parser.invalid(format!("Operator or function requires a document path; operator or function: {name}")))
        }
    }
}

/// Parses the rest of a sum or a difference, if the next token is its sign.
pub(in crate::expression) fn arithmetic<'a, L: Conditions>(
    parser: &mut Parsing<'a, L>,
    first: Operand,
    operand: fn(&mut Parsing<'a, L>) -> Result<Operand, Invalid>,
) -> Result<Operand, Invalid> {
    let sign = parser.peek();
    let node = match sign {
        Token::Symbol("+") => Operand::Sum,
        Token::Symbol("-") => Operand::Difference,
        _ => return Ok(first),
    };
    L::count(parser)?;
    parser.advance();
    let operands = [first, operand(parser)?];
    check_literals(parser, sign.text(), "N", &operands);
    Ok(node(Box::new(operands)))
}

pub(in crate::expression) fn list_append<L: Language>(
    parser: &mut Parsing<'_, L>,
    arguments: Vec<Operand>,
) -> Result<Operand, Invalid> {
    let operands = pair(parser, "list_append", arguments)?;
    check_literals(parser, "list_append", "L", &operands);
    Ok(Operand::ListAppend(Box::new(operands)))
}

fn pair<L: Language>(parser: &Parsing<'_, L>, name: &str, arguments: Vec<Operand>) -> Result<[Operand; 2], Invalid> {
    <[Operand; 2]>::try_from(arguments).map_err(|arguments| {
        let count = arguments.len();
        parser.invalid(format!(
            "Incorrect number of operands for operator or function; operator or function: {name}, number of operands: {count}"
        ))
    })
}

/// Refuses literal operands of another type.
fn check_literals<L: Language>(parser: &mut Parsing<'_, L>, operator: &str, code: &str, operands: &[Operand; 2]) {
    let misfit = operands.iter().find_map(|operand| match operand {
        Operand::Value(value) if value.type_code() != code => Some(value.type_code()),
        _ => None,
    });
    if let Some(found) = misfit {
        parser.refuse(wrong_type(operator, found));
    }
}
