//! The grammar of conditions, and what can be refused before an item is seen.

use super::check::{self, Called, Refusals};
use super::{Comparator, Node, Operand};
use crate::expression::parser::Parser;
use crate::expression::token::Token;
use crate::value::Invalid;

const KEYWORDS: [&str; 5] = ["AND", "OR", "NOT", "IN", "BETWEEN"];

/// `condition`, which must be all there is.
pub(super) fn condition(parser: &mut Parser<'_>) -> Result<Node, Invalid> {
    let term = disjunction(parser)?;
    term.condition(parser).map(|node| *node)
}

/// What parentheses may hold: until the next token is seen, `(a` may begin an operand or a condition.
struct Term {
    kind: TermKind,
    parenthesised: bool,
}

enum TermKind {
    Condition(Box<Node>),
    Operand(Operand),
    /// A function with a truth value: a condition of its own, but never an operand.
    Function(&'static str, Box<Node>),
}

impl Term {
    fn new(kind: TermKind) -> Self {
        Self { kind, parenthesised: false }
    }

    fn condition(self, parser: &mut Parser<'_>) -> Result<Box<Node>, Invalid> {
        match self.kind {
            TermKind::Condition(node) | TermKind::Function(_, node) => Ok(node),
            TermKind::Operand(Operand::Size(_)) => Err(parser.misused("size")),
            TermKind::Operand(_) => Err(parser.syntax_error()),
        }
    }

    fn operand(self, parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
        match self.kind {
            TermKind::Operand(operand) => Ok(operand),
            TermKind::Function(name, _) => Err(parser.misused(name)),
            TermKind::Condition(_) => Err(parser.syntax_error()),
        }
    }
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
        let next = link(parser)?;
        nodes.push(*next.condition(parser)?);
    }
    Ok(Term::new(TermKind::Condition(Box::new(node(nodes)))))
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
    Ok(Term::new(TermKind::Condition(if negations % 2 == 0 { node } else { Box::new(Node::Not(node)) })))
}

fn comparison(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    let left = primary(parser)?;
    let operator = if comparator(parser.peek()).is_some() {
        compare
    } else if parser.peek().is_keyword("BETWEEN") {
        between
    } else if parser.peek().is_keyword("IN") {
        membership
    } else {
        return Ok(left);
    };
    parser.count_operator()?;
    let left = left.operand(parser)?;
    operator(parser, left).map(|node| Term::new(TermKind::Condition(Box::new(node))))
}

fn compare(parser: &mut Parser<'_>, left: Operand) -> Result<Node, Invalid> {
    let comparator = comparator(parser.peek()).ok_or_else(|| parser.syntax_error())?;
    parser.advance();
    let right = operand(parser)?;
    let mut refusals = Refusals::new();
    check::comparison(&left, comparator, &right, &mut refusals);
    parser.refuse_first(refusals);
    Ok(Node::Compare(left, comparator, right))
}

fn between(parser: &mut Parser<'_>, left: Operand) -> Result<Node, Invalid> {
    parser.expect_keyword("BETWEEN")?;
    let low = operand(parser)?;
    parser.expect_keyword("AND")?;
    let high = operand(parser)?;
    let mut refusals = Refusals::new();
    check::between(&left, &low, &high, &mut refusals);
    parser.refuse_first(refusals);
    Ok(Node::Between(left, low, high))
}

fn membership(parser: &mut Parser<'_>, left: Operand) -> Result<Node, Invalid> {
    parser.expect_keyword("IN")?;
    parser.expect("(")?;
    let candidates = parser.parenthesised(|parser| parser.list(operand))?;
    let mut refusals = Refusals::new();
    check::membership(&candidates, &mut refusals);
    parser.refuse_first(refusals);
    Ok(Node::In(left, candidates))
}

fn comparator(token: Token<'_>) -> Option<Comparator> {
    let Token::Symbol(symbol) = token else { return None };
    Comparator::of(symbol)
}

fn operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    let term = primary(parser)?;
    term.operand(parser)
}

fn primary(parser: &mut Parser<'_>) -> Result<Term, Invalid> {
    if parser.eat("(") {
        let inner = parser.parenthesised(disjunction)?;
        if inner.parenthesised {
            return Err(parser.redundant_parentheses());
        }
        return Ok(Term { parenthesised: true, ..inner });
    }
    if let Some(name) = parser.call()? {
        let arguments = parser.parenthesised(|parser| parser.list(operand))?;
        return function(parser, name, arguments).map(Term::new);
    }
    plain_operand(parser).map(|operand| Term::new(TermKind::Operand(operand)))
}

fn plain_operand(parser: &mut Parser<'_>) -> Result<Operand, Invalid> {
    match parser.peek() {
        Token::Value(_) => parser.value().map(Operand::Value),
        _ => parser.path(&KEYWORDS).map(Operand::Path),
    }
}

fn function(parser: &mut Parser<'_>, name: &str, arguments: Vec<Operand>) -> Result<TermKind, Invalid> {
    let mut refusals = Refusals::new();
    let called = check::call(name, arguments, &mut refusals).map_err(|reason| parser.invalid(reason))?;
    parser.refuse_first(refusals);
    Ok(match called {
        Called::Operand(operand) => TermKind::Operand(operand),
        Called::Condition(name, node) => TermKind::Function(name, Box::new(node)),
    })
}
