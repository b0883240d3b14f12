//! The peculiarities of `WHERE` clauses. They result in the same conditions as expressions.

use super::parser::{Statements, malformed};
use crate::expression::condition::parse::{Conditions, Term, operand};
use crate::expression::condition::{Node, Operand};
use crate::expression::parsing::Parsing;
use crate::expression::token::Token;
use crate::value::Invalid;

impl Conditions for Statements {
    fn no_condition(_parser: &Parsing<'_, Self>, _operand: &Operand) -> Invalid {
        Invalid::new("WHERE clause must contain an expression that resolves to a boolean")
    }

    fn no_operand(_parser: &Parsing<'_, Self>, _function: Option<&str>) -> Invalid {
        malformed("Unexpected operator")
    }

    fn no_right_side(_parser: &Parsing<'_, Self>) -> Invalid {
        malformed("Missing right-hand side expression of infix operator")
    }

    /// Parses `[..]` or `(..)`.
    fn candidates(parser: &mut Parsing<'_, Self>) -> Result<Vec<Operand>, Invalid> {
        if parser.eat("(") {
            return parser.parenthesised(|parser| parser.list(operand));
        }
        if !parser.eat("[") {
            return Err(Invalid::new(
                "IN operator must have a left hand argument of type Variable Reference and right hand argument of type Seq with at least one member",
            ));
        }
        let candidates = parser.list(operand)?;
        parser.expect("]")?;
        Ok(candidates)
    }

    /// Parses `IS` and the type after it.
    fn other(parser: &mut Parsing<'_, Self>, left: Term) -> Result<Term, Invalid> {
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
        if !parser.eat_keyword("IS") {
            return Ok(left);
        }
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

    fn call(parser: &mut Parsing<'_, Self>) -> Result<Option<(String, Vec<Operand>)>, Invalid> {
        const FUNCTIONS: [&str; 6] =
            ["attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains", "size"];
        let Some(call) = parser.call() else { return Ok(None) };
        if !FUNCTIONS.contains(&call.name.as_str()) {
            return Err(parser.unrecognized(&call));
        }
        let arguments = parser.parenthesised(|parser| match parser.peek() {
            Token::Symbol(")") => Ok(Vec::new()),
            _ => parser.list(operand),
        })?;
        Ok(Some((call.name, arguments)))
    }

    fn plain(parser: &mut Parsing<'_, Self>) -> Result<Operand, Invalid> {
        Ok(match parser.value()? {
            Some(value) => Operand::Value(value),
            None => Operand::Path(parser.document_path()?),
        })
    }
}
