//! Parses DynamoDB's conditions, in expressions and in the `WHERE` clause of PartiQL statements.

use super::{Comparator, Node, Operand, check};
use crate::expression::parser::{Parser, malformed};
use crate::expression::token::Token;
use crate::value::Invalid;

const KEYWORDS: [&str; 5] = ["AND", "OR", "NOT", "IN", "BETWEEN"];

/// The contents of parentheses: until the next token is seen, `(a` may begin an operand or a condition.
struct Term {
    kind: TermKind,
    parenthesised: bool,
}

pub(super) enum TermKind {
    Condition(Box<Node>),
    Operand(Operand),
    /// A function with a truth value: a condition, but not an operand.
    Function(&'static str, Box<Node>),
}

impl From<TermKind> for Term {
    fn from(kind: TermKind) -> Self {
        Self { kind, parenthesised: false }
    }
}

impl From<Node> for Term {
    fn from(node: Node) -> Self {
        TermKind::Condition(Box::new(node)).into()
    }
}

impl Term {
    fn condition(self, parser: &Parser<'_>) -> Result<Box<Node>, Invalid> {
        Err(match self.kind {
            TermKind::Condition(node) | TermKind::Function(_, node) => return Ok(node),
            TermKind::Operand(_) if parser.is_statement() => {
                Invalid::new("WHERE clause must contain an expression that resolves to a boolean")
            }
            TermKind::Operand(Operand::Size(_)) => parser.misused("size"),
            TermKind::Operand(_) => parser.unexpected(),
        })
    }

    fn operand(self, parser: &Parser<'_>) -> Result<Operand, Invalid> {
        Err(match self.kind {
            TermKind::Operand(operand) => return Ok(operand),
            _ if parser.is_statement() => malformed("Unexpected operator"),
            TermKind::Function(name, _) => parser.misused(name),
            TermKind::Condition(_) => parser.unexpected(),
        })
    }
}

pub(in crate::expression) fn condition(parser: &mut Parser<'_>) -> Result<Node, Invalid> {
    let term = disjunction(parser)?;
    term.condition(parser).map(|node| *node)
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
    let mut nodes = vec![*first.condition(parser)?];
    while parser.eat_keyword(keyword) {
        parser.count_operator()?;
        if parser.is_statement() && parser.peek() == Token::End {
            return Err(malformed("Missing right-hand side expression of infix operator"));
        }
        let next = link(parser)?;
        nodes.push(*next.condition(parser)?);
    }
    Ok(node(nodes).into())
}

fn negation(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    let mut negations = 0;
    while parser.eat_keyword("NOT") {
        parser.count_operator()?;
        negations += 1;
    }
    let term = comparison(parser)?;
    if negations == 0 {
        return Ok(term);
    }
    let node = term.condition(parser)?;
    Ok(if negations % 2 == 0 { *node } else { Node::Not(node) }.into())
}

fn comparison(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    let left = primary(parser)?;
    let comparator = match parser.peek() {
        Token::Symbol(symbol) => Comparator::of(symbol),
        _ => None,
    };
    let is_between = parser.peek().is_keyword("BETWEEN");
    if comparator.is_none() && !is_between && !parser.peek().is_keyword("IN") {
        return if parser.is_statement() && parser.eat_keyword("IS") { is_type(parser, left) } else { Ok(left) };
    }
    parser.count_operator()?;
    let left = left.operand(parser)?;
    parser.advance();
    let node = if let Some(comparator) = comparator {
        let right = operand(parser)?;
        check::comparison(&left, comparator, &right, &mut parser.refusals);
        Node::Compare(left, comparator, right)
    } else if is_between {
        let low = operand(parser)?;
        parser.expect_keyword("AND")?;
        let high = operand(parser)?;
        check::between(&left, &low, &high, &mut parser.refusals);
        Node::Between(left, low, high)
    } else {
        let candidates = candidates(parser)?;
        check::membership(&candidates, &mut parser.refusals);
        Node::In(left, candidates)
    };
    Ok(node.into())
}

/// Parses the operands after `IN`: `(..)`, or `[..]` in a statement.
fn candidates(parser: &mut Parser<'_>) -> Result<Vec<Operand>, Invalid> {
    if parser.is_statement() && parser.eat("[") {
        let candidates = parser.list(operand)?;
        return parser.expect("]").map(|()| candidates);
    }
    if parser.is_statement() && parser.peek() != Token::Symbol("(") {
        return Err(Invalid::new(
            "IN operator must have a left hand argument of type Variable Reference and right hand argument of type Seq with at least one member",
        ));
    }
    parser.expect("(")?;
    parser.parenthesised(|parser| parser.list(operand))
}

/// Parses the type after `IS`.
fn is_type(parser: &mut Parser<'_>, left: Term) -> Result<Term, Invalid> {
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
    let left = left.operand(parser)?;
    let negated = parser.eat_keyword("NOT");
    let Operand::Path(path) = left else {
        let reason = "The left hand side argument to IS must be a Variable Reference, Literal, or Path";
        return Err(Invalid::new(reason));
    };
    if parser.eat_keyword("MISSING") {
        return Ok(if negated { Node::Exists(path) } else { Node::NotExists(path) }.into());
    }
    let found = KINDS.into_iter().find(|(keyword, _)| parser.peek().is_keyword(keyword));
    let Some((_, code)) = found else { return Err(malformed("Expected type name")) };
    parser.advance();
    let node = Node::Type(Operand::Path(path), code.to_owned());
    Ok(if negated { Node::Not(Box::new(node)) } else { node }.into())
}

fn operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    let term = primary(parser)?;
    term.operand(parser)
}

fn primary(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    if parser.eat("(") {
        let inner = parser.parenthesised(disjunction)?;
        if inner.parenthesised && !parser.is_statement() {
            return Err(parser.too_deep());
        }
        return Ok(Term { parenthesised: true, ..inner });
    }
    let Some(call) = parser.call()? else {
        let operand = match parser.value()? {
            Some(value) => Operand::Value(value),
            None => Operand::Path(parser.path(&KEYWORDS)?),
        };
        return Ok(TermKind::Operand(operand).into());
    };
    if parser.is_statement() && check::arity(&call.name).is_none() {
        return Err(parser.unrecognized(&call));
    }
    let arguments = parser.parenthesised(|parser| match parser.peek() {
        Token::Symbol(")") if parser.is_statement() => Ok(Vec::new()),
        _ => parser.list(operand),
    })?;
    let called = check::call(&call.name, arguments, &mut parser.refusals);
    Ok(called.map_err(|reason| parser.invalid(reason))?.into())
}
