//! The tokens of DynamoDB's expressions and of PartiQL statements, and the tokenizer of expressions.

/// One token and its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexeme<'a> {
    pub(super) token: Token<'a>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The kind of a token, with its text as written; quoted text comes without the quotation marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, function or attribute name.
    Word(&'a str),
    /// `#name` in an expression.
    Name(&'a str),
    /// `:value` in an expression.
    Value(&'a str),
    /// `"name"` in a statement.
    Quoted(&'a str),
    /// `'text'` in a statement.
    Text(&'a str),
    /// Decimal digits; in a statement, any number without a sign.
    Number(&'a str),
    /// An operator, bracket, separator or `?`.
    Symbol(&'a str),
    /// Characters that are not in the language, including a text without an end.
    Stray(&'a str),
    /// After the last token.
    End,
}

impl<'a> Token<'a> {
    /// The token as it appears in error messages.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Word(text)
            | Self::Name(text)
            | Self::Value(text)
            | Self::Quoted(text)
            | Self::Text(text)
            | Self::Number(text)
            | Self::Symbol(text)
            | Self::Stray(text) => text,
            Self::End => "<EOF>",
        }
    }

    /// Whether this is that keyword, in upper or lower case.
    pub(super) fn is_keyword(self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

/// The first token of an expression at or after this position.
pub(super) fn token_at(text: &str, from: usize) -> Lexeme<'_> {
    let rest = text[from..].trim_start_matches([' ', '\t', '\r', '\n']);
    let start = text.len() - rest.len();
    let Some(first) = rest.chars().next() else { return Lexeme { token: Token::End, start, end: start } };
    let token = token(rest, first);
    Lexeme { token, start, end: start + token.text().len() }
}

/// The token at the beginning of a text, which begins with `first`.
fn token(text: &str, first: char) -> Token<'_> {
    let word = |from: usize| {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        from + text.as_bytes()[from..].iter().take_while(|byte| is_part(byte)).count()
    };
    let stray = Token::Stray(&text[..first.len_utf8()]);
    match first {
        '#' | ':' => match word(1) {
            1 => stray,
            end if first == '#' => Token::Name(&text[..end]),
            end => Token::Value(&text[..end]),
        },
        'A'..='Z' | 'a'..='z' => Token::Word(&text[..word(0)]),
        '0'..='9' => Token::Number(&text[..text.bytes().take_while(u8::is_ascii_digit).count()]),
        '<' if text.starts_with("<=") || text.starts_with("<>") => Token::Symbol(&text[..2]),
        '>' if text.starts_with(">=") => Token::Symbol(&text[..2]),
        '=' | '<' | '>' | '(' | ')' | '[' | ']' | ',' | '.' | '+' | '-' => Token::Symbol(&text[..1]),
        _ => stray,
    }
}
