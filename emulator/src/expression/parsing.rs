//! What the two languages share: the cursor over the tokens, lists, parentheses, calls, document paths, and refusals that wait.

use super::condition::check::Refusals;
use super::path::{MAX_PATH_LEVELS, Path, Step};
use super::token::{Lexeme, Token};
use crate::value::Invalid;

/// What is different from language to language.
pub(super) trait Language: Sized {
    /// How deep parentheses and calls may nest.
    const MAX_NESTING: usize;

    /// The first token at or behind a position.
    fn token_at(text: &str, from: usize) -> Lexeme<'_>;

    /// A refusal for this reason.
    fn invalid(&self, reason: &str) -> Invalid;

    /// The refusal of the next token.
    fn unexpected(parser: &Parsing<'_, Self>) -> Invalid;

    /// The refusal of one level of parentheses too many.
    fn too_deep(parser: &Parsing<'_, Self>) -> Invalid;

    /// The first name of a document path, or one behind a dot.
    fn name(parser: &mut Parsing<'_, Self>, is_first: bool) -> Result<String, Invalid>;

    /// What stands between the brackets of a document path.
    fn bracketed(parser: &mut Parsing<'_, Self>) -> Result<Step, Invalid>;
}

/// A recursive-descent parser's state.
///
/// An error of syntax ends parsing at once. Any other refusal waits for the end, since syntax goes before meaning.
pub(super) struct Parsing<'a, L> {
    pub(super) language: L,
    pub(super) text: &'a str,
    /// Where the token before the next one begins.
    before: usize,
    next: Lexeme<'a>,
    nesting: usize,
    pub(super) refusals: Refusals,
}

impl<'a, L: Language> Parsing<'a, L> {
    pub(super) fn new(text: &'a str, language: L) -> Self {
        let next = L::token_at(text, 0);
        Self { language, text, before: next.start, next, nesting: 0, refusals: Refusals::new() }
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

    /// The next token between its neighbours.
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

    /// Refuses the text unless it turns out to be refused for its syntax.
    pub(super) fn refuse(&mut self, reason: impl Into<String>) {
        self.refusals.push(reason.into());
    }

    /// Parses what stands in parentheses, whose opening one was eaten.
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

    /// The items of a list separated by commas; at least one.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, Invalid>) -> Result<Vec<T>, Invalid> {
        let mut items = vec![item(self)?];
        while self.eat(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The name of a function and where it stands, if the next tokens are a call; its opening parenthesis is eaten.
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
