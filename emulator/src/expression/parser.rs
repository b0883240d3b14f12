//! The parser of expressions: placeholders, reserved words, limits, and the format of errors.

use super::Placeholders;
use super::parsing::{Language, Parsing};
use super::path::{MAX_INDEX, Path, Step};
use super::token::{Lexeme, Token, token_at};
use super::words::is_reserved;
use crate::value::{Invalid, Value};

const MAX_SIZE: usize = 4096;
const MAX_OPERATORS: usize = 300;

pub(super) type Parser<'a> = Parsing<'a, Expressions<'a>>;

/// The context of an expression.
pub(super) struct Expressions<'a> {
    /// The request parameter, for error messages.
    parameter: &'static str,
    placeholders: &'a mut Placeholders,
    operators: usize,
}

impl Language for Expressions<'_> {
    /// Parentheses that are not redundant need an operator between two of them.
    const MAX_NESTING: usize = MAX_OPERATORS;

    fn token_at(text: &str, from: usize) -> Lexeme<'_> {
        token_at(text, from)
    }

    fn invalid(&self, reason: &str) -> Invalid {
        Invalid::new(format!("Invalid {}: {reason}", self.parameter))
    }

    fn unexpected(parser: &Parsing<'_, Self>) -> Invalid {
        let (token, near) = (parser.peek().text(), parser.near());
        parser.invalid(format!("Syntax error; token: \"{token}\", near: \"{near}\""))
    }

    fn too_deep(parser: &Parsing<'_, Self>) -> Invalid {
        parser.invalid("The expression has redundant parentheses;")
    }

    fn name(parser: &mut Parsing<'_, Self>, _is_first: bool) -> Result<String, Invalid> {
        let token = parser.peek();
        let (Token::Word(text) | Token::Name(text)) = token else { return Err(parser.unexpected()) };
        parser.advance();
        if let Token::Word(_) = token {
            if is_reserved(text) {
                parser.refuse(format!("Attribute name is a reserved keyword; reserved keyword: {text}"));
            }
        } else if let Some(name) = parser.language.placeholders.name(text) {
            return Ok(name.to_owned());
        } else {
            parser.refuse(format!(
                "An expression attribute name used in the document path is not defined; attribute name: {text}"
            ));
        }
        Ok(text.to_owned())
    }

    fn bracketed(parser: &mut Parsing<'_, Self>) -> Result<Step, Invalid> {
        let Token::Number(digits) = parser.peek() else { return Err(parser.unexpected()) };
        parser.advance();
        let index = digits.parse().ok().filter(|index| *index <= MAX_INDEX);
        if index.is_none() {
            parser.refuse(format!("List index is not within the allowable range; index: [{digits}]"));
        }
        Ok(Step::Index(index.unwrap_or_default()))
    }
}

/// Parses a whole expression with one rule of a grammar.
pub(super) fn parse<'a, T>(
    parameter: &'static str,
    text: &'a str,
    placeholders: &'a mut Placeholders,
    rule: impl FnOnce(&mut Parser<'a>) -> Result<T, Invalid>,
) -> Result<T, Invalid> {
    let language = Expressions { parameter, placeholders, operators: 0 };
    if text.is_empty() {
        return Err(language.invalid("The expression can not be empty;"));
    }
    if text.len() > MAX_SIZE {
        let size = text.len();
        let reason = format!("Expression size has exceeded the maximum allowed size; expression size: {size}");
        return Err(language.invalid(&reason));
    }
    let mut parser = Parsing::new(text, language);
    let parsed = rule(&mut parser)?;
    if parser.peek() != Token::End {
        return Err(parser.unexpected());
    }
    parser.refusals.first().map_or(Ok(parsed), |reason| Err(parser.invalid(reason)))
}

impl Expressions<'_> {
    /// Counts an operator or function. An expression may contain 300.
    pub(super) fn count_operator(&mut self) -> Result<(), Invalid> {
        self.operators += 1;
        let count = self.operators;
        if count <= MAX_OPERATORS {
            return Ok(());
        }
        Err(self.invalid(&format!("The expression contains too many operators; operator count: {count}")))
    }

    pub(super) fn misused(&self, function: &str) -> Invalid {
        self.invalid(&format!("The function is not allowed to be used this way in an expression; function: {function}"))
    }
}

impl<'a> Parsing<'a, Expressions<'_>> {
    /// Consumes the name of a function and the opening parenthesis and counts the call, if the next tokens are one.
    pub(super) fn call(&mut self) -> Result<Option<&'a str>, Invalid> {
        let Some((name, _)) = self.called() else { return Ok(None) };
        self.language.count_operator()?;
        Ok(Some(name))
    }

    /// The value of the next token, which is a `:placeholder`.
    pub(super) fn value(&mut self) -> Result<Value, Invalid> {
        let Token::Value(key) = self.peek() else { return Err(self.unexpected()) };
        self.advance();
        if let Some(value) = self.language.placeholders.value(key) {
            return Ok(value.clone());
        }
        self.refuse(format!("An expression attribute value used in expression is not defined; attribute value: {key}"));
        Ok(Value::Null)
    }

    /// Parses a document path, which cannot begin with one of these keywords.
    pub(super) fn path(&mut self, keywords: &[&str]) -> Result<Path, Invalid> {
        if keywords.iter().any(|keyword| self.peek().is_keyword(keyword)) {
            return Err(self.unexpected());
        }
        self.document_path()
    }
}
