//! The grammar of conditions, in expressions and in the `WHERE` clause of statements.

use super::{Comparator, Node, Operand, check};
use crate::expression::parser::Expressions;
use crate::expression::parsing::{Language, Parsing};
use crate::expression::token::Token;
use crate::value::Invalid;

/// The differences between the conditions of the two languages.
pub(in crate::expression) trait Conditions: Language {
    /// Counts an operator, in the language that limits them.
    fn count(_parser: &mut Parsing<'_, Self>) -> Result<(), Invalid> {
        Ok(())
    }

    /// The error for an operand in place of a condition.
    fn no_condition(parser: &Parsing<'_, Self>, operand: &Operand) -> Invalid;

    /// The error for a condition or a function call in place of an operand.
    fn no_operand(parser: &Parsing<'_, Self>, function: Option<&str>) -> Invalid;

    /// The error for `AND` or `OR` without a right side.
    fn no_right_side(parser: &Parsing<'_, Self>) -> Invalid {
        parser.unexpected()
    }

    /// Handles redundant parentheses.
    fn doubled(_parser: &Parsing<'_, Self>) -> Result<(), Invalid> {
        Ok(())
    }

    /// Parses the operands after `IN`.
    fn candidates(parser: &mut Parsing<'_, Self>) -> Result<Vec<Operand>, Invalid>;

    /// Parses an operator other than a comparison, `BETWEEN` and `IN`, if the language has more.
    fn other(_parser: &mut Parsing<'_, Self>, left: Term) -> Result<Term, Invalid> {
        Ok(left)
    }

    /// Parses the name and the arguments of a function, if the next tokens are a call.
    fn call(parser: &mut Parsing<'_, Self>) -> Result<Option<(String, Vec<Operand>)>, Invalid>;

    /// Parses a value or a path.
    fn plain(parser: &mut Parsing<'_, Self>) -> Result<Operand, Invalid>;
}

/// The contents of parentheses: until the next token is seen, `(a` may begin an operand or a condition.
pub(in crate::expression) struct Term {
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
    fn condition<L: Conditions>(self, parser: &Parsing<'_, L>) -> Result<Box<Node>, Invalid> {
        match self.kind {
            TermKind::Condition(node) | TermKind::Function(_, node) => Ok(node),
            TermKind::Operand(operand) => Err(L::no_condition(parser, &operand)),
        }
    }

    pub(in crate::expression) fn operand<L: Conditions>(self, parser: &Parsing<'_, L>) -> Result<Operand, Invalid> {
        match self.kind {
            TermKind::Operand(operand) => Ok(operand),
            TermKind::Function(name, _) => Err(L::no_operand(parser, Some(name))),
            TermKind::Condition(_) => Err(L::no_operand(parser, None)),
        }
    }
}

pub(in crate::expression) fn condition<L: Conditions>(parser: &mut Parsing<'_, L>) -> Result<Node, Invalid> {
    let term = disjunction(parser)?;
    term.condition(parser).map(|node| *node)
}

fn disjunction<L: Conditions>(parser: &mut Parsing<'_, L>) -> Result<Term, Invalid> {
    chain(parser, "OR", conjunction, Node::Or)
}

fn conjunction<L: Conditions>(parser: &mut Parsing<'_, L>) -> Result<Term, Invalid> {
    chain(parser, "AND", negation, Node::And)
}

fn chain<'a, L: Conditions>(
    parser: &mut Parsing<'a, L>,
    keyword: &str,
    link: fn(&mut Parsing<'a, L>) -> Result<Term, Invalid>,
    node: fn(Vec<Node>) -> Node,
) -> Result<Term, Invalid> {
    let first = link(parser)?;
    if !parser.peek().is_keyword(keyword) {
        return Ok(first);
    }
    let mut nodes = vec![*first.condition(parser)?];
    while parser.eat_keyword(keyword) {
        L::count(parser)?;
        if parser.peek() == Token::End {
            return Err(L::no_right_side(parser));
        }
        let next = link(parser)?;
        nodes.push(*next.condition(parser)?);
    }
    Ok(node(nodes).into())
}

fn negation<L: Conditions>(parser: &mut Parsing<'_, L>) -> Result<Term, Invalid> {
    let mut negations = 0;
    while parser.eat_keyword("NOT") {
        L::count(parser)?;
        negations += 1;
    }
    let term = comparison(parser)?;
    if negations == 0 {
        return Ok(term);
    }
    let node = term.condition(parser)?;
    Ok(if negations % 2 == 0 { *node } else { Node::Not(node) }.into())
}

fn comparison<L: Conditions>(parser: &mut Parsing<'_, L>) -> Result<Term, Invalid> {
    let left = primary(parser)?;
    let comparator = match parser.peek() {
        Token::Symbol(symbol) => Comparator::of(symbol),
        _ => None,
    };
    let is_between = parser.peek().is_keyword("BETWEEN");
    if comparator.is_none() && !is_between && !parser.peek().is_keyword("IN") {
        return L::other(parser, left);
    }
    L::count(parser)?;
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
        let candidates = L::candidates(parser)?;
        check::membership(&candidates, &mut parser.refusals);
        Node::In(left, candidates)
    };
    Ok(node.into())
}

pub(in crate::expression) fn operand<L: Conditions>(parser: &mut Parsing<'_, L>) -> Result<Operand, Invalid> {
    let term = primary(parser)?;
    term.operand(parser)
}

fn primary<L: Conditions>(parser: &mut Parsing<'_, L>) -> Result<Term, Invalid> {
    if parser.eat("(") {
        let inner = parser.parenthesised(disjunction)?;
        if inner.parenthesised {
            L::doubled(parser)?;
        }
        return Ok(Term { parenthesised: true, ..inner });
    }
    let Some((name, arguments)) = L::call(parser)? else {
        return Ok(TermKind::Operand(L::plain(parser)?).into());
    };
    let called = check::call(&name, arguments, &mut parser.refusals);
    Ok(called.map_err(|reason| parser.invalid(reason))?.into())
}

impl Conditions for Expressions<'_> {
    fn count(parser: &mut Parsing<'_, Self>) -> Result<(), Invalid> {
        parser.language.count_operator()
    }

    fn no_condition(parser: &Parsing<'_, Self>, operand: &Operand) -> Invalid {
        match operand {
            Operand::Size(_) => parser.language.misused("size"),
            _ => parser.unexpected(),
        }
    }

    fn no_operand(parser: &Parsing<'_, Self>, function: Option<&str>) -> Invalid {
        function.map_or_else(|| parser.unexpected(), |name| parser.language.misused(name))
    }

    fn doubled(parser: &Parsing<'_, Self>) -> Result<(), Invalid> {
        Err(Self::too_deep(parser))
    }

    fn candidates(parser: &mut Parsing<'_, Self>) -> Result<Vec<Operand>, Invalid> {
        parser.expect("(")?;
        parser.parenthesised(|parser| parser.list(operand))
    }

    fn call(parser: &mut Parsing<'_, Self>) -> Result<Option<(String, Vec<Operand>)>, Invalid> {
        let Some(name) = parser.call()? else { return Ok(None) };
        Ok(Some((name.to_owned(), parser.parenthesised(|parser| parser.list(operand))?)))
    }

    fn plain(parser: &mut Parsing<'_, Self>) -> Result<Operand, Invalid> {
        const KEYWORDS: [&str; 5] = ["AND", "OR", "NOT", "IN", "BETWEEN"];
        match parser.peek() {
            Token::Value(_) => parser.value().map(Operand::Value),
            _ => parser.path(&KEYWORDS).map(Operand::Path),
        }
    }
}
