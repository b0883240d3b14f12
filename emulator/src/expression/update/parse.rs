//! The grammar of updates, and the checks that need no item.

use super::{Action, Expression, Operand, Verb};
use crate::expression::condition::check::wrong_type;
use crate::expression::parser::Parser;
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
    let expression = expression(parser)?;
    Ok(Action { path, verb: Verb::Set(expression) })
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

fn path_and_value(parser: &mut Parser<'_>) -> Result<(crate::expression::path::Path, Value), Invalid> {
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
fn expression(parser: &mut Parser<'_>) -> Result<Expression, Invalid> {
    let first = match term(parser)? {
        Expression::Operand(operand) => operand,
        whole => return Ok(whole),
    };
    let node = match parser.peek() {
        Token::Symbol("+") => Expression::Sum,
        Token::Symbol("-") => Expression::Difference,
        _ => return Ok(Expression::Operand(first)),
    };
    let operator = parser.peek().text();
    parser.language.count_operator()?;
    parser.advance();
    let second = operand(parser)?;
    check_literals(parser, operator, "N", [&first, &second]);
    Ok(node(first, second))
}

fn term(parser: &mut Parser<'_>) -> Result<Expression, Invalid> {
    if parser.eat("(") { parser.parenthesised(expression) } else { unparenthesised(parser).map(Expression::Operand) }
}

fn operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    match term(parser)? {
        Expression::Operand(operand) => Ok(operand),
        _ => Err(parser.unexpected()),
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
    if !["if_not_exists", "list_append"].contains(&name) {
        return Err(parser.invalid(format!("Invalid function name; function: {name}")));
    }
    let count = arguments.len();
    let Ok([first, second]) = <[Operand; 2]>::try_from(arguments) else {
        return Err(parser.invalid(format!(
            "Incorrect number of operands for operator or function; operator or function: {name}, number of operands: {count}"
        )));
    };
    if name == "list_append" {
        if [&first, &second].iter().any(|operand| matches!(operand, Operand::ListAppend(..))) {
            return Err(parser.language.misused(name));
        }
        check_literals(parser, name, "L", [&first, &second]);
        return Ok(Operand::ListAppend(Box::new(first), Box::new(second)));
    }
    match first {
        Operand::Path(path) => Ok(Operand::IfNotExists(path, Box::new(second))),
        _ => {
            Err(parser.invalid(format!("Operator or function requires a document path; operator or function: {name}")))
        }
    }
}

/// Refuses literal operands of another type.
fn check_literals(parser: &mut Parser<'_>, operator: &str, code: &str, operands: [&Operand; 2]) {
    if let Some(reason) = misfit(operator, code, operands) {
        parser.refuse(reason);
    }
}

/// The error for literal operands of another type.
pub(in crate::expression) fn misfit(operator: &str, code: &str, operands: [&Operand; 2]) -> Option<String> {
    operands.into_iter().find_map(|operand| match operand {
        Operand::Value(value) if value.type_code() != code => Some(wrong_type(operator, value.type_code())),
        _ => None,
    })
}
