//! Splits a PartiQL statement into tokens, one at a time.

use crate::expression::token::{Lexeme, Token};

/// The first token at or after this position.
pub(in crate::expression) fn token_at(text: &str, from: usize) -> Lexeme<'_> {
    let Some(start) = skip_blank(text, from) else {
        return Lexeme { token: Token::Stray(""), start: text.len(), end: text.len() };
    };
    let rest = &text[start..];
    let Some(first) = rest.chars().next() else { return Lexeme { token: Token::End, start, end: start } };
    let (token, length) = match first {
        'A'..='Z' | 'a'..='z' | '_' | '$' => {
            let length = rest.bytes().take_while(|byte| is_word_part(*byte)).count();
            (Token::Word(&rest[..length]), length)
        }
        '"' => quoted(rest, '"', Token::Quoted),
        '\'' => quoted(rest, '\'', Token::Text),
        '0'..='9' => number(rest),
        '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => number(rest),
        _ => match symbol(rest) {
            Some(symbol) => (Token::Symbol(symbol), symbol.len()),
            None => (Token::Stray(&rest[..first.len_utf8()]), first.len_utf8()),
        },
    };
    Lexeme { token, start, end: start + length }
}

/// The position of the next token, after blanks and comments; `None` if a comment does not end.
fn skip_blank(text: &str, mut at: usize) -> Option<usize> {
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\x0b', '\x0c']).len();
        at += blank;
        let rest = &text[at..];
        if rest.starts_with("--") {
            at += rest.find(['\r', '\n']).unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/")? + 2;
        } else {
            return Some(at);
        }
    }
}

/// A text up to its closing quotation mark. A mark inside of it is doubled.
fn quoted<'a>(rest: &'a str, mark: char, token: fn(&'a str) -> Token<'a>) -> (Token<'a>, usize) {
    let mut at = 1;
    while let Some(found) = rest[at..].find(mark) {
        let end = at + found + 1;
        if !rest[end..].starts_with(mark) {
            return (token(&rest[1..end - 1]), end);
        }
        at = end + 1;
    }
    (Token::Stray(rest), rest.len())
}

fn number(rest: &str) -> (Token<'_>, usize) {
    let bytes = rest.as_bytes();
    let digits = |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let power = digits(end + 1 + sign);
        if power > end + 1 + sign {
            end = power;
        }
    }
    (Token::Number(&rest[..end]), end)
}

fn symbol(rest: &str) -> Option<&str> {
    const LONG: [&str; 6] = ["<<", ">>", "<=", ">=", "<>", "!="];
    const SHORT: &str = "=<>()[]{},.:+-*;?";
    let head = rest.get(..2).filter(|head| LONG.contains(head));
    head.or_else(|| rest.get(..1).filter(|head| SHORT.contains(head)))
}

fn is_word_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}
