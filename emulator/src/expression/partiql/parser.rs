//! The part of the parser that only PartiQL statements need: literals, parameters (`?`), and the end of a statement.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::expression::parser::{Call, Language, Parser, malformed, undoubled, unsupported};
use crate::expression::token::Token;
use crate::number::Number;
use crate::value::{Invalid, MAX_DEPTH, NESTED_TOO_DEEP, Value};

const COUNT: &str = "Number of parameters in request and statement don't match.";

impl Parser<'_> {
    /// Checks that the statement ends here and every parameter was used.
    pub(super) fn finish(mut self) -> Result<(), Invalid> {
        self.eat(";");
        match self.peek() {
            Token::End if self.parameters().is_some_and(|left| left.len() > 0) => Err(Invalid::new(COUNT)),
            Token::End => self.refusals.pop().map_or(Ok(()), |reason| Err(Invalid::new(reason))),
            Token::Stray(_) => Err(malformed("")),
            token if token.is_keyword("RETURNING") => Err(unsupported("RETURNING")),
            _ => Err(malformed("Unexpected token after expression")),
        }
    }

    fn parameters(&mut self) -> Option<&mut std::vec::IntoIter<Value>> {
        if let Language::Statement { parameters } = &mut self.language { Some(parameters) } else { None }
    }

    pub(in crate::expression) fn unrecognized(&self, Call { name, at }: &Call) -> Invalid {
        let before = &self.text[..*at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
        Invalid::new(format!("Unrecognized function: {name} at {line}:{column}:{}", name.len()))
    }

    /// Parses a literal or a parameter, if the next token begins one.
    pub(in crate::expression) fn literal(&mut self) -> Result<Option<Value>, Invalid> {
        self.literal_at(&Place::Root, 1)
    }

    fn literal_at(&mut self, place: &Place<'_>, depth: usize) -> Result<Option<Value>, Invalid> {
        if depth > MAX_DEPTH {
            return Err(Invalid::new(NESTED_TOO_DEEP));
        }
        let value = match self.peek() {
            Token::Text(text) => Value::S(undoubled(text, '\'')),
            Token::Number(text) => Value::N(number(text, "", place)?),
            Token::Symbol(sign @ ("-" | "+")) => {
                let Token::Number(text) = self.peek_second() else { return Ok(None) };
                self.advance();
                Value::N(number(text, sign, place)?)
            }
            Token::Symbol("?") => {
                let value = self.parameters().and_then(Iterator::next).ok_or_else(|| Invalid::new(COUNT))?;
                if depth > 1 && depth - 1 + value.depth() > MAX_DEPTH {
                    return Err(Invalid::new(NESTED_TOO_DEEP));
                }
                value
            }
            Token::Symbol("[") => return self.list_literal(place, depth).map(Some),
            Token::Symbol("{") => return self.map_literal(place, depth).map(|map| Some(Value::M(map))),
            Token::Symbol("<<") => return Err(unsupported("A bag")),
            token if token.is_keyword("true") => Value::Bool(true),
            token if token.is_keyword("false") => Value::Bool(false),
            token if token.is_keyword("null") => Value::Null,
            token if token.is_keyword("missing") => {
                return Err(Invalid::new("MISSING must be compared using IS operator"));
            }
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(value))
    }

    fn some_value(&mut self, place: &Place<'_>, depth: usize) -> Result<Value, Invalid> {
        self.literal_at(place, depth)?.ok_or_else(|| self.unexpected())
    }

    fn list_literal(&mut self, place: &Place<'_>, depth: usize) -> Result<Value, Invalid> {
        self.expect("[")?;
        let mut elements = Vec::new();
        while !self.eat("]") {
            if !elements.is_empty() {
                self.expect(",")?;
            }
            elements.push(self.some_value(&Place::Element(place, elements.len()), depth + 1)?);
        }
        Ok(Value::L(elements))
    }

    /// Parses `{'name': value, ..}`.
    fn map_literal(&mut self, place: &Place<'_>, depth: usize) -> Result<BTreeMap<String, Value>, Invalid> {
        self.expect("{")?;
        let mut map = BTreeMap::new();
        while !self.eat("}") {
            if !map.is_empty() {
                self.expect(",")?;
            }
            let Token::Text(text) = self.peek() else { return Err(self.unexpected()) };
            let name = undoubled(text, '\'');
            self.advance();
            self.expect(":")?;
            let value = self.some_value(&Place::Field(place, &name), depth + 1)?;
            if map.contains_key(&name) {
                return Err(Invalid::new(format!("Duplicate keys in tuple. Key: {name} under {place}")));
            }
            map.insert(name, value);
        }
        Ok(map)
    }

    /// Parses the item of an `INSERT`, whose attributes are separate roots in error messages.
    pub(super) fn item(&mut self) -> Result<BTreeMap<String, Value>, Invalid> {
        if self.peek() != Token::Symbol("{") {
            return Err(Invalid::new(
                "Unsupported format in item expression. Please use struct format {...} to express item values for insert statement.",
            ));
        }
        self.map_literal(&Place::Item, 0)
    }
}

/// The position of a literal in a value.
enum Place<'p> {
    /// The item of an `INSERT`.
    Item,
    /// A whole value.
    Root,
    Field(&'p Place<'p>, &'p str),
    Element(&'p Place<'p>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item | Self::Root | Self::Field(Place::Item, _) => f.write_str("root"),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

fn number(text: &str, sign: &str, place: &Place<'_>) -> Result<Number, Invalid> {
    let text = if sign == "-" { Cow::Owned(format!("-{text}")) } else { Cow::Borrowed(text) };
    text.parse().map_err(|refusal: Invalid| Invalid::new(format!("{} under {place}", refusal.0)))
}
