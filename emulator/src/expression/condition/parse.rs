//! The grammar of conditions, and what can be refused before an item is seen.

use super::{Comparator, Node, Operand};
use crate::expression::parser::Parser;
use crate::expression::token::Token;
use crate::value::{Invalid, Value};

const MAX_IN_OPERANDS: usize = 100;
const KEYWORDS: [&str; 5] = ["AND", "OR", "NOT", "IN", "BETWEEN"];
const TYPES: [&str; 10] = ["S", "SS", "N", "NS", "B", "BS", "BOOL", "NULL", "L", "M"];

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
    check_comparison(parser, &left, comparator, &right);
    Ok(Node::Compare(left, comparator, right))
}

fn between(parser: &mut Parser<'_>, left: Operand) -> Result<Node, Invalid> {
    parser.expect_keyword("BETWEEN")?;
    let low = operand(parser)?;
    parser.expect_keyword("AND")?;
    let high = operand(parser)?;
    check_between(parser, &left, &low, &high);
    Ok(Node::Between(left, low, high))
}

fn membership(parser: &mut Parser<'_>, left: Operand) -> Result<Node, Invalid> {
    parser.expect_keyword("IN")?;
    parser.expect("(")?;
    let candidates = parser.parenthesised(|parser| parser.list(operand))?;
    if candidates.len() > MAX_IN_OPERANDS {
        let count = candidates.len();
        parser.refuse(format!("The IN operator is provided with too many operands; number of operands: {count}"));
    }
    Ok(Node::In(left, candidates))
}

fn comparator(token: Token<'_>) -> Option<Comparator> {
    let Token::Symbol(symbol) = token else { return None };
    Some(match symbol {
        "=" => Comparator::Equal,
        "<>" => Comparator::NotEqual,
        "<" => Comparator::Less,
        "<=" => Comparator::LessOrEqual,
        ">" => Comparator::Greater,
        ">=" => Comparator::GreaterOrEqual,
        _ => return None,
    })
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
    let (name, arity) = match name {
        "attribute_exists" => ("attribute_exists", 1),
        "attribute_not_exists" => ("attribute_not_exists", 1),
        "attribute_type" => ("attribute_type", 2),
        "begins_with" => ("begins_with", 2),
        "contains" => ("contains", 2),
        "size" => ("size", 1),
        _ => return Err(parser.invalid(format!("Invalid function name; function: {name}"))),
    };
    let count = arguments.len();
    let mut arguments = arguments.into_iter();
    let (Some(first), second, None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err(wrong_count(parser, name, count));
    };
    if count != arity {
        return Err(wrong_count(parser, name, count));
    }
    let Some(second) = second else { return unary(parser, name, first) };
    check_distinct(parser, name, &first, &second);
    let node = match name {
        "attribute_type" => {
            let code = type_name(parser, &second);
            Node::Type(first, code)
        }
        "begins_with" => {
            check_type(parser, "begins_with", &[&first, &second], &["S", "B"]);
            Node::BeginsWith(first, second)
        }
        _ => Node::Contains(first, second),
    };
    Ok(TermKind::Function(name, Box::new(node)))
}

fn unary(parser: &mut Parser<'_>, name: &'static str, argument: Operand) -> Result<TermKind, Invalid> {
    if name == "size" {
        check_type(parser, name, &[&argument], &["S", "B", "SS", "NS", "BS", "L", "M"]);
        return Ok(TermKind::Operand(Operand::Size(Box::new(argument))));
    }
    let Operand::Path(path) = argument else {
        return Err(
            parser.invalid(format!("Operator or function requires a document path; operator or function: {name}"))
        );
    };
    let node = if name == "attribute_exists" { Node::Exists(path) } else { Node::NotExists(path) };
    Ok(TermKind::Function(name, Box::new(node)))
}

fn wrong_count(parser: &Parser<'_>, name: &str, count: usize) -> Invalid {
    parser.invalid(format!(
        "Incorrect number of operands for operator or function; operator or function: {name}, number of operands: {count}"
    ))
}

fn type_name(parser: &mut Parser<'_>, operand: &Operand) -> String {
    let Operand::Value(Value::S(code)) = operand else {
        let found = match operand {
            Operand::Value(value) => value.type_code(),
            Operand::Size(_) => "N",
            Operand::Path(_) => "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}",
        };
        refuse_type(parser, "attribute_type", found);
        return String::new();
    };
    if !TYPES.contains(&code.as_str()) {
        parser.refuse(format!(
            "Invalid attribute type name found; type: {code}, valid types: {{B,NULL,SS,BOOL,L,BS,N,NS,S,M}}"
        ));
    }
    code.clone()
}

fn check_comparison(parser: &mut Parser<'_>, left: &Operand, comparator: Comparator, right: &Operand) {
    check_distinct(parser, comparator.symbol(), left, right);
    if !matches!(comparator, Comparator::Equal | Comparator::NotEqual) {
        check_type(parser, comparator.symbol(), &[left, right], &["S", "N", "B"]);
    }
}

fn check_between(parser: &mut Parser<'_>, operand: &Operand, low: &Operand, high: &Operand) {
    check_type(parser, "BETWEEN", &[operand, low, high], &["S", "N", "B"]);
    let (Operand::Value(low), Operand::Value(high)) = (low, high) else { return };
    let rule = match low.order(high) {
        None => "same data type for lower and upper bounds",
        Some(order) if order.is_gt() => "upper bound to be greater than or equal to lower bound",
        Some(_) => return,
    };
    let shown = |value: &Value| match value {
        Value::S(text) => format!("AttributeValue: {{S:{text}}}"),
        Value::N(number) => format!("AttributeValue: {{N:{number}}}"),
        other => format!("AttributeValue: {{{}}}", other.type_code()),
    };
    parser.refuse(format!(
        "The BETWEEN operator requires {rule}; lower bound operand: {}, upper bound operand: {}",
        shown(low),
        shown(high)
    ));
}

fn check_distinct(parser: &mut Parser<'_>, operator: &str, left: &Operand, right: &Operand) {
    if let (Operand::Path(left), Operand::Path(right)) = (left, right)
        && left == right
    {
        parser.refuse(format!(
            "The first operand must be distinct from the remaining operands for this operator or function; operator: {operator}, first operand: {left}"
        ));
    }
}

/// Refuses literal operands of another type than these; what a path leads to is seen only with the item.
fn check_type(parser: &mut Parser<'_>, operator: &str, operands: &[&Operand], types: &[&str]) {
    for operand in operands {
        let found = match operand {
            Operand::Path(_) => continue,
            Operand::Value(value) => value.type_code(),
            Operand::Size(_) => "N",
        };
        if !types.contains(&found) {
            return refuse_type(parser, operator, found);
        }
    }
}

fn refuse_type(parser: &mut Parser<'_>, operator: &str, found: &str) {
    parser.refuse(format!(
        "Incorrect operand type for operator or function; operator or function: {operator}, operand type: {found}"
    ));
}
