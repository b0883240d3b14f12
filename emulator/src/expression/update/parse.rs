//! Parses DynamoDB's updates, in expressions and in the clauses of PartiQL statements, and checks what can be checked
//! without the item.

use super::{Action, Operand, Verb};
use crate::expression::condition::check::wrong_type;
use crate::expression::parser::{Parser, unsupported};
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

pub(in crate::expression) fn set(parser: &mut Parser<'_>) -> Result<Action, Invalid> {
    let path = parser.path(&CLAUSES)?;
    parser.expect("=")?;
    parser.count_operator()?;
    Ok(Action { path, verb: Verb::Set(right_side(parser)?) })
}

pub(in crate::expression) fn remove(parser: &mut Parser<'_>) -> Result<Action, Invalid> {
    parser.count_operator()?;
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
    parser.count_operator()?;
    let path = parser.path(&CLAUSES)?;
    let value = parser.value()?.ok_or_else(|| parser.unexpected())?;
    Ok((path, value))
}

fn check_is_set(parser: &mut Parser<'_>, operator: &str, value: &Value) {
    let found = match value {
        Value::Set(_) => return,
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

/// Parses the right side of `=`: an operand, a sum or a difference, with or without parentheses. In a statement nothing is in
/// parentheses, and no sign follows a function.
fn right_side(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    let first = term(parser)?;
    let sign = parser.peek();
    let node = match (sign, &first) {
        (_, Operand::Sum(_) | Operand::Difference(_)) => return Ok(first),
        (_, Operand::ListAppend(_)) if parser.is_statement() => return Ok(first),
        (Token::Symbol("+"), _) => Operand::Sum,
        (Token::Symbol("-"), _) => Operand::Difference,
        _ => return Ok(first),
    };
    parser.count_operator()?;
    parser.advance();
    let operands = [first, operand(parser)?];
    check_literals(parser, sign.text(), "N", &operands);
    Ok(node(Box::new(operands)))
}

fn term(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    if !parser.is_statement() && parser.eat("(") {
        return parser.parenthesised(right_side);
    }
    if let Some(call) = parser.call()? {
        match call.name.as_str() {
            "set_add" | "set_delete" if parser.is_statement() => return Err(unsupported(&call.name)),
            name if parser.is_statement() && name != "list_append" => return Err(parser.unrecognized(&call)),
            _ => {}
        }
        let arguments = parser.parenthesised(|parser| parser.list(operand))?;
        return function(parser, &call.name, arguments);
    }
    Ok(match parser.value()? {
        Some(value) => Operand::Value(value),
        None => Operand::Path(parser.path(&CLAUSES)?),
    })
}

fn operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    match term(parser)? {
        Operand::Sum(_) | Operand::Difference(_) => Err(parser.unexpected()),
        operand => Ok(operand),
    }
}

fn function(parser: &mut Parser<'_>, name: &str, arguments: Vec<Operand>) -> Result<Operand, Invalid> {
    if !["list_append", "if_not_exists"].contains(&name) {
        return Err(parser.invalid(format!("Invalid function name; function: {name}")));
    }
    let operands = <[Operand; 2]>::try_from(arguments).map_err(|arguments| {
        let count = arguments.len();
        parser.invalid(format!(
            "Incorrect number of operands for operator or function; operator or function: {name}, number of operands: {count}"
        ))
    })?;
    match operands {
        operands if name == "list_append" => {
            let is_nested = operands.iter().any(|one| matches!(one, Operand::ListAppend(_)));
            if is_nested && !parser.is_statement() {
                return Err(parser.misused(name));
            }
            check_literals(parser, name, "L", &operands);
            Ok(Operand::ListAppend(Box::new(operands)))
        }
        [Operand::Path(path), otherwise] => Ok(Operand::IfNotExists(path, Box::new(otherwise))),
        _ => {
            Err(parser.invalid(format!("Operator or function requires a document path; operator or function: {name}")))
        }
    }
}

/// Refuses literal operands of another type.
fn check_literals(parser: &mut Parser<'_>, operator: &str, code: &str, operands: &[Operand; 2]) {
    let misfit = operands.iter().find_map(|operand| match operand {
        Operand::Value(value) if value.type_code() != code => Some(value.type_code()),
        _ => None,
    });
    if let Some(found) = misfit {
        parser.refuse(wrong_type(operator, found));
    }
}
