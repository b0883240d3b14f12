//! The common parser of DynamoDB's expressions and of PartiQL statements: the cursor over the tokens, lists,
//! parentheses, calls, names, values, document paths, limits, and the format of errors. The grammars of conditions,
//! updates and statements use it.

use super::Placeholders;
use super::path::{MAX_INDEX, MAX_PATH_LEVELS, Path, Step, clash_among};
use super::token::{Lexeme, Token};
use super::words::{is_keyword, is_reserved};
use super::{partiql, token};
use crate::value::{Invalid, Value};

const MAX_SIZE: usize = 4096;
const MAX_OPERATORS: usize = 300;
const MAX_STATEMENT_NESTING: usize = 100;

/// The language of a text, with what its names and values stand for.
pub(super) enum Language<'a> {
    /// An expression. Errors name its request parameter.
    Expression { parameter: &'static str, placeholders: &'a mut Placeholders, operators: usize },
    /// A PartiQL statement. Each `?` is the next parameter.
    Statement { parameters: std::vec::IntoIter<Value> },
}

/// The state of a recursive-descent parser.
///
/// A syntax error ends parsing at once. Any other error is postponed until the end, since syntax errors take precedence.
pub(super) struct Parser<'a> {
    pub(super) language: Language<'a>,
    pub(super) text: &'a str,
    /// The start of the token before the next one.
    before: usize,
    next: Lexeme<'a>,
    nesting: usize,
    pub(super) refusals: Vec<String>,
}

/// The name of a called function, and its position. In a statement the name is in lower case.
pub(super) struct Call {
    pub(super) name: String,
    pub(super) at: usize,
}

/// Parses a whole expression with one rule of a grammar.
pub(super) fn parse<'a, T>(
    parameter: &'static str,
    text: &'a str,
    placeholders: &'a mut Placeholders,
    rule: impl FnOnce(&mut Parser<'a>) -> Result<T, Invalid>,
) -> Result<T, Invalid> {
    let mut parser = Parser::new(text, Language::Expression { parameter, placeholders, operators: 0 });
    if text.is_empty() {
        return Err(parser.invalid("The expression can not be empty;"));
    }
    if text.len() > MAX_SIZE {
        let size = text.len();
        let reason = format!("Expression size has exceeded the maximum allowed size; expression size: {size}");
        return Err(parser.invalid(reason));
    }
    let parsed = rule(&mut parser)?;
    if parser.peek() != Token::End {
        return Err(parser.unexpected());
    }
    parser.refusals.first().map_or(Ok(parsed), |reason| Err(parser.invalid(reason)))
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, language: Language<'a>) -> Self {
        let start = Lexeme { token: Token::End, start: 0, end: 0 };
        let mut parser = Self { language, text, before: 0, next: start, nesting: 0, refusals: Vec::new() };
        parser.advance();
        parser.before = parser.next.start;
        parser
    }

    pub(super) fn is_statement(&self) -> bool {
        matches!(self.language, Language::Statement { .. })
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.next.token
    }

    /// The token after the next one.
    fn second(&self) -> Lexeme<'a> {
        let token_at = if self.is_statement() { partiql::token::token_at } else { token::token_at };
        token_at(self.text, self.next.end)
    }

    pub(super) fn peek_second(&self) -> Token<'a> {
        self.second().token
    }

    pub(super) fn advance(&mut self) {
        self.before = self.next.start;
        self.next = self.second();
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

    /// An error with this reason.
    pub(super) fn invalid(&self, reason: impl AsRef<str>) -> Invalid {
        let reason = reason.as_ref();
        match self.language {
            Language::Expression { parameter, .. } => Invalid::new(format!("Invalid {parameter}: {reason}")),
            Language::Statement { .. } => Invalid::new(reason),
        }
    }

    /// The error for an unexpected token. In an expression, it shows the token with its neighbours.
    pub(super) fn unexpected(&self) -> Invalid {
        if !self.is_statement() {
            let (token, near) = (self.peek().text(), &self.text[self.before..self.second().end]);
            return self.invalid(format!("Syntax error; token: \"{token}\", near: \"{near}\""));
        }
        malformed(match self.peek() {
            Token::Word(word) if is_keyword(word) => "Unexpected keyword",
            Token::Stray(_) => "",
            _ => "Unexpected term",
        })
    }

    /// The error for too many levels of parentheses. An expression with more levels than operators has redundant ones.
    pub(super) fn too_deep(&self) -> Invalid {
        if self.is_statement() {
            malformed("The statement is nested too deeply")
        } else {
            self.invalid("The expression has redundant parentheses;")
        }
    }

    pub(super) fn misused(&self, function: &str) -> Invalid {
        self.invalid(format!("The function is not allowed to be used this way in an expression; function: {function}"))
    }

    /// Records an error, which counts unless there is a syntax error.
    pub(super) fn refuse(&mut self, reason: impl Into<String>) {
        self.refusals.push(reason.into());
    }

    /// Refuses paths that clash.
    pub(super) fn refuse_clashes(&mut self, paths: &[&Path]) {
        self.refusals.extend(clash_among(paths));
    }

    /// Counts an operator or function. An expression may contain 300, and a statement any number.
    pub(super) fn count_operator(&mut self) -> Result<(), Invalid> {
        let Language::Expression { operators, .. } = &mut self.language else { return Ok(()) };
        *operators += 1;
        let count = *operators;
        if count <= MAX_OPERATORS {
            return Ok(());
        }
        Err(self.invalid(format!("The expression contains too many operators; operator count: {count}")))
    }

    /// Parses the contents of parentheses after the opening one.
    pub(super) fn parenthesised<T>(
        &mut self,
        rule: impl FnOnce(&mut Self) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        self.nesting += 1;
        if self.nesting > if self.is_statement() { MAX_STATEMENT_NESTING } else { MAX_OPERATORS } {
            return Err(self.too_deep());
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

    /// Consumes the name of a function and the opening parenthesis and counts the call, if the next tokens are one.
    pub(super) fn call(&mut self) -> Result<Option<Call>, Invalid> {
        let Token::Word(name) = self.peek() else { return Ok(None) };
        if self.peek_second() != Token::Symbol("(") {
            return Ok(None);
        }
        let at = self.next.start;
        self.advance();
        self.advance();
        self.count_operator()?;
        let name = if self.is_statement() { name.to_ascii_lowercase() } else { name.to_owned() };
        Ok(Some(Call { name, at }))
    }

    /// Parses a value, if the next token begins one: in an expression a `:placeholder`, in a statement a literal or a `?`.
    pub(super) fn value(&mut self) -> Result<Option<Value>, Invalid> {
        let Language::Expression { placeholders, .. } = &mut self.language else {
            return self.literal();
        };
        let Token::Value(key) = self.next.token else { return Ok(None) };
        let value = placeholders.value(key).cloned();
        self.advance();
        if value.is_none() {
            let undefined = "An expression attribute value used in expression is not defined; attribute value:";
            self.refuse(format!("{undefined} {key}"));
        }
        Ok(Some(value.unwrap_or(Value::Null)))
    }

    /// Parses a document path, which cannot begin with one of these keywords.
    pub(super) fn path(&mut self, keywords: &[&str]) -> Result<Path, Invalid> {
        if keywords.iter().any(|keyword| self.peek().is_keyword(keyword)) {
            return Err(self.unexpected());
        }
        let root = self.name("")?;
        let mut steps = Vec::new();
        loop {
            if self.eat(".") {
                steps.push(Step::Field(self.name("Invalid path dot component")?));
            } else if self.eat("[") {
                steps.push(self.bracketed()?);
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

    /// Parses a name in a document path. `missing` is the error of a statement without one.
    fn name(&mut self, missing: &str) -> Result<String, Invalid> {
        let Language::Expression { placeholders, .. } = &mut self.language else { return self.identifier(missing) };
        let name = match self.next.token {
            Token::Word(text) => {
                if is_reserved(text) {
                    self.refuse(format!("Attribute name is a reserved keyword; reserved keyword: {text}"));
                }
                text.to_owned()
            }
            Token::Name(text) => {
                let name = placeholders.name(text).map(str::to_owned);
                if name.is_none() {
                    let undefined = "An expression attribute name used in the document path is not defined;";
                    self.refuse(format!("{undefined} attribute name: {text}"));
                }
                name.unwrap_or_else(|| text.to_owned())
            }
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(name)
    }

    /// Parses a name, which must not be a keyword unless it is quoted.
    pub(super) fn identifier(&mut self, missing: &str) -> Result<String, Invalid> {
        let name = match self.peek() {
            Token::Word(word) if !is_keyword(word) => word.to_owned(),
            Token::Quoted(text) => undoubled(text, '"'),
            _ if missing.is_empty() => return Err(self.unexpected()),
            _ => return Err(malformed(missing)),
        };
        self.advance();
        if name.is_empty() {
            return Err(Invalid::new("Path component cannot be an empty string"));
        }
        Ok(name)
    }

    /// Parses the contents of brackets in a document path.
    fn bracketed(&mut self) -> Result<Step, Invalid> {
        let step = match self.peek() {
            Token::Text(text) => Step::Field(undoubled(text, '\'')),
            Token::Number(digits) => {
                let index = digits.parse().ok().filter(|index| *index <= MAX_INDEX);
                if index.is_none() {
                    let reason = format!("List index is not within the allowable range; index: [{digits}]");
                    if self.is_statement() {
                        return Err(self.invalid(reason));
                    }
                    self.refuse(reason);
                }
                Step::Index(index.unwrap_or_default())
            }
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(step)
    }
}

/// The error for a statement that cannot be parsed.
pub(super) fn malformed(detail: &str) -> Invalid {
    Invalid::new(format!("Statement wasn't well formed, can't be processed: {detail}"))
}

/// The error for a part of the language that is not implemented.
pub(super) fn unsupported(what: &str) -> Invalid {
    Invalid::new(format!("{what} is not supported by this emulator"))
}

/// Removes the doubling of quotation marks in a text.
pub(super) fn undoubled(text: &str, mark: char) -> String {
    if !text.contains(mark) {
        return text.to_owned();
    }
    text.replace(&format!("{mark}{mark}"), &mark.to_string())
}
