//! What the grammars share: the cursor over the tokens, document paths, placeholders, limits and the shape of refusals.

use super::path::{MAX_INDEX, MAX_PATH_LEVELS, Path, Step, clash_among};
use super::reserved::is_reserved;
use super::token::{Lexeme, Token, tokens};
use super::{Kind, Placeholders};
use crate::value::{Invalid, Value};

const MAX_SIZE: usize = 4096;
const MAX_OPERATORS: usize = 300;
/// How deep parentheses may nest: none is redundant only if an operator stands between two of them.
const MAX_NESTING: usize = MAX_OPERATORS;

/// A recursive-descent parser's state.
///
/// An error of syntax ends parsing at once. Any other refusal waits for the end, since syntax goes before meaning.
pub(super) struct Parser<'a> {
    kind: Kind,
    text: &'a str,
    lexemes: Vec<Lexeme<'a>>,
    at: usize,
    placeholders: &'a mut Placeholders,
    operators: usize,
    nesting: usize,
    refusal: Option<Invalid>,
}

impl<'a> Parser<'a> {
    /// Parses a whole expression with one rule of a grammar.
    pub(super) fn parse<T>(
        kind: Kind,
        text: &'a str,
        placeholders: &'a mut Placeholders,
        rule: impl FnOnce(&mut Self) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        let invalid = |reason: &str| Invalid::new(format!("Invalid {kind}: {reason}"));
        if text.is_empty() {
            return Err(invalid("The expression can not be empty;"));
        }
        if text.len() > MAX_SIZE {
            let size = text.len();
            let reason = format!("Expression size has exceeded the maximum allowed size; expression size: {size}");
            return Err(invalid(&reason));
        }
        let lexemes = tokens(text);
        let mut parser = Self { kind, text, lexemes, at: 0, placeholders, operators: 0, nesting: 0, refusal: None };
        let parsed = rule(&mut parser)?;
        if parser.peek() != Token::End {
            return Err(parser.syntax_error());
        }
        parser.refusal.map_or(Ok(parsed), Err)
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.lexemes[self.at].token
    }

    /// The token after the next one.
    pub(super) fn peek_second(&self) -> Token<'a> {
        self.lexemes.get(self.at + 1).map_or(Token::End, |lexeme| lexeme.token)
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.lexemes.len() - 1);
    }

    pub(super) fn eat(&mut self, symbol: &str) -> bool {
        let found = self.peek() == Token::Symbol(symbol);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn eat_keyword(&mut self, keyword: &str) -> bool {
        let found = self.peek().is_keyword(keyword);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, symbol: &str) -> Result<(), Invalid> {
        if self.eat(symbol) { Ok(()) } else { Err(self.syntax_error()) }
    }

    pub(super) fn expect_keyword(&mut self, keyword: &str) -> Result<(), Invalid> {
        if self.eat_keyword(keyword) { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// The refusal of the next token, shown between its neighbours.
    pub(super) fn syntax_error(&self) -> Invalid {
        let first = &self.lexemes[self.at.saturating_sub(1)];
        let last = &self.lexemes[(self.at + 1).min(self.lexemes.len() - 1)];
        let (token, near) = (self.peek().text(), &self.text[first.start..last.end]);
        self.invalid(format!("Syntax error; token: \"{token}\", near: \"{near}\""))
    }

    pub(super) fn invalid(&self, reason: impl AsRef<str>) -> Invalid {
        Invalid::new(format!("Invalid {}: {}", self.kind, reason.as_ref()))
    }

    /// Refuses the expression unless it turns out to be refused for its syntax, or was refused before.
    pub(super) fn refuse(&mut self, reason: impl AsRef<str>) {
        if self.refusal.is_none() {
            self.refusal = Some(self.invalid(reason));
        }
    }

    /// Counts one operator or function, of which an expression may hold 300.
    pub(super) fn count_operator(&mut self) -> Result<(), Invalid> {
        self.operators += 1;
        if self.operators <= MAX_OPERATORS {
            return Ok(());
        }
        let count = self.operators;
        Err(self.invalid(format!("The expression contains too many operators; operator count: {count}")))
    }

    /// Refuses the expression for the first of these reasons, if there is one.
    pub(super) fn refuse_first(&mut self, reasons: Vec<String>) {
        if let Some(reason) = reasons.into_iter().next() {
            self.refuse(reason);
        }
    }

    pub(super) fn misused(&self, function: &str) -> Invalid {
        self.invalid(format!("The function is not allowed to be used this way in an expression; function: {function}"))
    }

    pub(super) fn redundant_parentheses(&self) -> Invalid {
        self.invalid("The expression has redundant parentheses;")
    }

    /// Parses inside parentheses, whose opening one was eaten.
    pub(super) fn parenthesised<T>(
        &mut self,
        rule: impl FnOnce(&mut Self) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(self.redundant_parentheses());
        }
        let inner = rule(self)?;
        self.expect(")")?;
        self.nesting -= 1;
        Ok(inner)
    }

    /// The items of a list separated by commas; at least one.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, Invalid>) -> Result<Vec<T>, Invalid> {
        let mut items = vec![item(self)?];
        while self.eat(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The name of a function, if the next tokens are a call; its opening parenthesis is eaten and the call counted.
    pub(super) fn call(&mut self) -> Result<Option<&'a str>, Invalid> {
        let Token::Word(name) = self.peek() else { return Ok(None) };
        if self.peek_second() != Token::Symbol("(") {
            return Ok(None);
        }
        self.count_operator()?;
        self.advance();
        self.advance();
        Ok(Some(name))
    }

    /// The value of the next token, which is a `:placeholder`.
    pub(super) fn value(&mut self) -> Result<Value, Invalid> {
        let Token::Value(key) = self.peek() else { return Err(self.syntax_error()) };
        self.advance();
        if let Some(value) = self.placeholders.value(key) {
            return Ok(value.clone());
        }
        self.refuse(format!("An expression attribute value used in expression is not defined; attribute value: {key}"));
        Ok(Value::Null)
    }

    /// A document path; none of these keywords can begin it.
    pub(super) fn path(&mut self, keywords: &[&str]) -> Result<Path, Invalid> {
        if keywords.iter().any(|keyword| self.peek().is_keyword(keyword)) {
            return Err(self.syntax_error());
        }
        let root = self.name()?;
        let mut steps = Vec::new();
        loop {
            if self.eat(".") {
                steps.push(Step::Field(self.name()?));
            } else if self.eat("[") {
                steps.push(Step::Index(self.index()?));
                self.expect("]")?;
            } else {
                break;
            }
        }
        if steps.len() >= MAX_PATH_LEVELS {
            let levels = steps.len() + 1;
            self.refuse(format!("The document path has too many nesting levels; nesting levels: {levels}"));
        }
        Ok(Path { root, steps })
    }

    fn name(&mut self) -> Result<String, Invalid> {
        let token = self.peek();
        let (Token::Word(text) | Token::Name(text)) = token else { return Err(self.syntax_error()) };
        self.advance();
        if let Token::Word(_) = token {
            if is_reserved(text) {
                self.refuse(format!("Attribute name is a reserved keyword; reserved keyword: {text}"));
            }
            return Ok(text.to_owned());
        }
        if let Some(name) = self.placeholders.name(text) {
            return Ok(name.to_owned());
        }
        self.refuse(format!(
            "An expression attribute name used in the document path is not defined; attribute name: {text}"
        ));
        Ok(text.to_owned())
    }

    fn index(&mut self) -> Result<usize, Invalid> {
        let Token::Digits(digits) = self.peek() else { return Err(self.syntax_error()) };
        self.advance();
        let index = digits.parse().ok().filter(|index| *index <= MAX_INDEX);
        if index.is_none() {
            self.refuse(format!("List index is not within the allowable range; index: [{digits}]"));
        }
        Ok(index.unwrap_or_default())
    }

    /// Refuses paths that touch each other.
    pub(super) fn refuse_clashes(&mut self, paths: &[&Path]) {
        if let Some(reason) = clash_among(paths) {
            self.refuse(reason);
        }
    }
}
