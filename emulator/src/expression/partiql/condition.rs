//! The grammar of `WHERE`: what it makes are the conditions that expressions make.

use super::parser::{Parser, malformed};
use super::token::Token;
use crate::expression::condition::check::{self, Called};
use crate::expression::condition::{Comparator, Node, Operand};
use crate::value::Invalid;

/// What parentheses may hold: until the next token is seen, `(a` may begin an operand or a condition.
enum Term {
    Operand(Operand),
    Condition(Node),
}

impl Term {
    fn condition(self) -> Result<Node, Invalid> {
        match self {
            Self::Condition(node) => Ok(node),
            Self::Operand(_) => Err(Invalid::new("WHERE clause must contain an expression that resolves to a boolean")),
        }
    }

    fn operand(self) -> Result<Operand, Invalid> {
        match self {
            Self::Operand(operand) => Ok(operand),
            Self::Condition(_) => Err(malformed("Unexpected operator")),
        }
    }
}

pub(super) fn condition(parser: &mut Parser<'_>) -> Result<Node, Invalid> {
    disjunction(parser)?.condition()
}

fn disjunction(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    chain(parser, "OR", conjunction, Node::Or)
}

fn conjunction(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    chain(parser, "AND", negation, Node::And)
}

fn chain(
    parser: &mut Parser<'_>,
    keyword: &str,
    link: fn(&mut Parser<'_>) -> Result<Term, Invalid>,
    node: fn(Vec<Node>) -> Node,
) -> Result<Term, Invalid> {
    let first = link(parser)?;
    if !parser.peek().is_keyword(keyword) {
        return Ok(first);
    }
    let mut nodes = vec![first.condition()?];
    while parser.eat_keyword(keyword) {
        if parser.peek() == Token::End {
            return Err(malformed("Missing right-hand side expression of infix operator"));
        }
        nodes.push(link(parser)?.condition()?);
    }
    Ok(Term::Condition(node(nodes)))
}

fn negation(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    let mut negated = None;
    while parser.eat_keyword("NOT") {
        negated = Some(!negated.unwrap_or(false));
    }
    let term = comparison(parser)?;
    Ok(match negated {
        None => term,
        Some(false) => Term::Condition(term.condition()?),
        Some(true) => Term::Condition(Node::Not(Box::new(term.condition()?))),
    })
}

fn comparison(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    let left = primary(parser)?;
    let node = if let Some(comparator) = comparator(parser.peek()) {
        parser.advance();
        let (left, right) = (left.operand()?, operand(parser)?);
        check::comparison(&left, comparator, &right, &mut parser.refusals);
        Node::Compare(left, comparator, right)
    } else if parser.eat_keyword("BETWEEN") {
        let (left, low) = (left.operand()?, operand(parser)?);
        parser.expect_keyword("AND")?;
        let high = operand(parser)?;
        check::between(&left, &low, &high, &mut parser.refusals);
        Node::Between(left, low, high)
    } else if parser.eat_keyword("IN") {
        membership(parser, left.operand()?)?
    } else if parser.eat_keyword("IS") {
        kind(parser, left.operand()?)?
    } else {
        return Ok(left);
    };
    Ok(Term::Condition(node))
}

fn comparator(token: Token<'_>) -> Option<Comparator> {
    match token {
        Token::Symbol("!=") => Some(Comparator::NotEqual),
        Token::Symbol(symbol) => Comparator::of(symbol),
        _ => None,
    }
}

/// `[..]` or `(..)`.
fn membership(parser: &mut Parser<'_>, left: Operand) -> Result<Node, Invalid> {
    let candidates = if parser.eat("(") {
        parser.parenthesised(|parser| parser.list(operand))?
    } else if parser.eat("[") {
        let candidates = parser.list(operand)?;
        parser.expect("]")?;
        candidates
    } else {
        return Err(Invalid::new(
            "IN operator must have a left hand argument of type Variable Reference and right hand argument of type Seq with at least one member",
        ));
    };
    check::membership(&candidates, &mut parser.refusals);
    Ok(Node::In(left, candidates))
}

/// What follows `IS`.
fn kind(parser: &mut Parser<'_>, left: Operand) -> Result<Node, Invalid> {
    const KINDS: [(&str, &str); 9] = [
        ("NULL", "NULL"),
        ("BOOL", "BOOL"),
        ("BOOLEAN", "BOOL"),
        ("STRING", "S"),
        ("NUMERIC", "N"),
        ("BLOB", "B"),
        ("STRUCT", "M"),
        ("TUPLE", "M"),
        ("LIST", "L"),
    ];
    let negated = parser.eat_keyword("NOT");
    let Operand::Path(path) = left else {
        let reason = "The left hand side argument to IS must be a Variable Reference, Literal, or Path";
        return Err(Invalid::new(reason));
    };
    if parser.eat_keyword("MISSING") {
        return Ok(if negated { Node::Exists(path) } else { Node::NotExists(path) });
    }
    let found = KINDS.into_iter().find(|(keyword, _)| parser.peek().is_keyword(keyword));
    let Some((_, code)) = found else { return Err(malformed("Expected type name")) };
    parser.advance();
    let node = Node::Type(Operand::Path(path), code.to_owned());
    Ok(if negated { Node::Not(Box::new(node)) } else { node })
}

fn operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    primary(parser)?.operand()
}

fn primary(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    if parser.eat("(") {
        return parser.parenthesised(disjunction);
    }
    let Some(call) = parser.call() else {
        return Ok(Term::Operand(match parser.value()? {
            Some(value) => Operand::Value(value),
            None => Operand::Path(parser.path()?),
        }));
    };
    let is_select = parser.peek().is_keyword("SELECT");
    if call.name == "exists" && is_select {
        return Err(Invalid::new(super::EXISTS));
    }
    const FUNCTIONS: [&str; 6] =
        ["attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains", "size"];
    if !FUNCTIONS.contains(&call.name.as_str()) {
        return Err(parser.unrecognized(&call));
    }
    let arguments = parser.parenthesised(|parser| match parser.peek() {
        Token::Symbol(")") => Ok(Vec::new()),
        _ => parser.list(operand),
    })?;
    Ok(match check::call(&call.name, arguments, &mut parser.refusals).map_err(Invalid::new)? {
        Called::Operand(operand) => Term::Operand(operand),
        Called::Condition(_, node) => Term::Condition(node),
    })
}
