//! Cuts an expression into tokens.

/// One token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexeme<'a> {
    pub(super) token: Token<'a>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a token is; every kind holds its text as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, function or attribute name.
    Word(&'a str),
    /// `#name`.
    Name(&'a str),
    /// `:value`.
    Value(&'a str),
    /// Decimal digits.
    Digits(&'a str),
    /// An operator, bracket or separator.
    Symbol(&'a str),
    /// A character that no expression holds.
    Stray(&'a str),
    /// Behind the last token.
    End,
}

impl<'a> Token<'a> {
    /// The token as refusals show it.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Word(text)
            | Self::Name(text)
            | Self::Value(text)
            | Self::Digits(text)
            | Self::Symbol(text)
            | Self::Stray(text) => text,
            Self::End => "<EOF>",
        }
    }

    /// Whether this is that keyword; keywords have no case.
    pub(super) fn is_keyword(self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

/// All tokens of an expression, the last of them `End`.
pub(super) fn tokens(text: &str) -> Vec<Lexeme<'_>> {
    let mut lexemes = Vec::with_capacity(text.len() / 3 + 1);
    let mut start = 0;
    while let Some(first) = text[start..].chars().next() {
        if matches!(first, ' ' | '\t' | '\r' | '\n') {
            start += 1;
            continue;
        }
        let token = token(&text[start..], first);
        let end = start + token.text().len();
        lexemes.push(Lexeme { token, start, end });
        start = end;
    }
    lexemes.push(Lexeme { token: Token::End, start: text.len(), end: text.len() });
    lexemes
}

/// The token at the head of a text, which begins with `first`.
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
        '0'..='9' => Token::Digits(&text[..text.bytes().take_while(u8::is_ascii_digit).count()]),
        '<' if text.starts_with("<=") || text.starts_with("<>") => Token::Symbol(&text[..2]),
        '>' if text.starts_with(">=") => Token::Symbol(&text[..2]),
        '=' | '<' | '>' | '(' | ')' | '[' | ']' | ',' | '.' | '+' | '-' => Token::Symbol(&text[..1]),
        _ => stray,
    }
}
