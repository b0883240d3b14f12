//! The parser that both languages share: the cursor over the tokens, lists, parentheses, calls, document paths and postponed
//! errors.

use super::path::{MAX_PATH_LEVELS, Path, Step, clash_among};
use super::token::{Lexeme, Token};
use crate::value::Invalid;

/// The differences between the languages.
pub(super) trait Language: Sized {
    /// The maximum nesting of parentheses and calls.
    const MAX_NESTING: usize;

    /// The first token at or after a position.
    fn token_at(text: &str, from: usize) -> Lexeme<'_>;

    /// An error with this reason.
    fn invalid(&self, reason: &str) -> Invalid;

    /// The error for an unexpected token.
    fn unexpected(parser: &Parsing<'_, Self>) -> Invalid;

    /// The error for too many levels of parentheses.
    fn too_deep(parser: &Parsing<'_, Self>) -> Invalid;

    /// Parses a name in a document path: the first one, or one after a dot.
    fn name(parser: &mut Parsing<'_, Self>, is_first: bool) -> Result<String, Invalid>;

    /// Parses the contents of brackets in a document path.
    fn bracketed(parser: &mut Parsing<'_, Self>) -> Result<Step, Invalid>;
}

/// The state of a recursive-descent parser.
///
/// A syntax error ends parsing at once. Any other error is postponed until the end, since syntax errors take precedence.
pub(super) struct Parsing<'a, L> {
    pub(super) language: L,
    pub(super) text: &'a str,
    /// The start of the token before the next one.
    before: usize,
    next: Lexeme<'a>,
    nesting: usize,
    pub(super) refusals: Vec<String>,
}

impl<'a, L: Language> Parsing<'a, L> {
    pub(super) fn new(text: &'a str, language: L) -> Self {
        let next = L::token_at(text, 0);
        Self { language, text, before: next.start, next, nesting: 0, refusals: Vec::new() }
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.next.token
    }

    /// The token after the next one.
    pub(super) fn peek_second(&self) -> Token<'a> {
        L::token_at(self.text, self.next.end).token
    }

    pub(super) fn advance(&mut self) {
        self.before = self.next.start;
        self.next = L::token_at(self.text, self.next.end);
    }

    /// The next token with its neighbours, for error messages.
    pub(super) fn near(&self) -> &'a str {
        &self.text[self.before..L::token_at(self.text, self.next.end).end]
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
        if self.eat(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn expect_keyword(&mut self, keyword: &str) -> Result<(), Invalid> {
        if self.eat_keyword(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn unexpected(&self) -> Invalid {
        L::unexpected(self)
    }

    pub(super) fn invalid(&self, reason: impl AsRef<str>) -> Invalid {
        self.language.invalid(reason.as_ref())
    }

    /// Records an error, which counts unless there is a syntax error.
    pub(super) fn refuse(&mut self, reason: impl Into<String>) {
        self.refusals.push(reason.into());
    }

    /// Refuses paths that clash.
    pub(super) fn refuse_clashes(&mut self, paths: &[&Path]) {
        self.refusals.extend(clash_among(paths));
    }

    /// Parses the contents of parentheses after the opening one.
    pub(super) fn parenthesised<T>(
        &mut self,
        rule: impl FnOnce(&mut Self) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        self.nesting += 1;
        if self.nesting > L::MAX_NESTING {
            return Err(L::too_deep(self));
        }
        let inner = rule(self)?;
        self.expect(")")?;
        self.nesting -= 1;
        Ok(inner)
    }

    /// Parses a comma-separated list of at least one item.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, Invalid>) -> Result<Vec<T>, Invalid> {
        let mut items = vec![item(self)?];
        while self.eat(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Consumes the name of a function and the opening parenthesis, if the next tokens are a call. Returns the name and its
    /// position.
    pub(super) fn called(&mut self) -> Option<(&'a str, usize)> {
        let Token::Word(name) = self.peek() else { return None };
        if self.peek_second() != Token::Symbol("(") {
            return None;
        }
        let at = self.next.start;
        self.advance();
        self.advance();
        Some((name, at))
    }

    pub(super) fn document_path(&mut self) -> Result<Path, Invalid> {
        let root = L::name(self, true)?;
        let mut steps = Vec::new();
        loop {
            if self.eat(".") {
                steps.push(Step::Field(L::name(self, false)?));
            } else if self.eat("[") {
                steps.push(L::bracketed(self)?);
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
}
