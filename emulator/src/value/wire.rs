//! The JSON form of DynamoDB's values, such as `{"S": "text"}`, and the errors of requests whose JSON cannot be parsed.

mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Item, Value};
use crate::error::{Error, Kind};

/// Marks a validation error inside a reader's error, which can only contain text.
const VALIDATION: &str = "ValidationException: ";

/// Marks our message for a value of a wrong type. Serde puts its own message before it.
const EXPECTED: &str = "\u{1}";

/// A body that cannot be parsed is a `ValidationException` if it is well-formed JSON with a value that is not allowed, and a
/// `SerializationException` if it is not the JSON of this protocol.
impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        let located = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        let message = located.strip_suffix(&position).unwrap_or(&located);
        match message.strip_prefix(VALIDATION) {
            Some(rule) if error.is_data() => Self::validation(rule),
            _ if error.is_data() => absent(message)
                .or_else(|| unsupported(message))
                .unwrap_or_else(|| Self::new(Kind::Serialization, words(message))),
            _ => Self::new(Kind::Serialization, message),
        }
    }
}

fn words(message: &str) -> &str {
    message.rsplit_once(EXPECTED).map_or(message, |(_, words)| words)
}

/// The error for a missing member. Null counts as missing.
fn absent(message: &str) -> Option<Error> {
    let name = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    let at = match name {
        Some(name) => {
            let (first, rest) = name.split_at_checked(1)?;
            format!(" at '{}{rest}'", first.to_ascii_lowercase())
        }
        None if message.starts_with("invalid type: null, ") => String::new(),
        None => return None,
    };
    let rule = "failed to satisfy constraint: Member must not be null";
    Some(Error::validation(format!("1 validation error detected: Value null{at} {rule}")))
}

/// The error for a parameter that is not implemented: it is refused by name instead of being ignored.
fn unsupported(message: &str) -> Option<Error> {
    let (name, _) = message.strip_prefix("unknown field `")?.split_once('`')?;
    Some(Error::validation(format!("The parameter {name} is not supported by this emulator")))
}

/// `ExpressionAttributeValues`. An error in a value names its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Values(pub BTreeMap<String, Value>);

/// Writes a value as DynamoDB does, with numbers in their canonical form.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tagged = serializer.serialize_map(Some(1))?;
        tagged.serialize_entry(self.type_code(), &Bare(self))?;
        tagged.end()
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Serialises a value without its descriptor.
struct Bare<'a>(&'a Value);

impl Serialize for Bare<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::S(text) => serializer.serialize_str(text),
            Value::N(number) => serializer.collect_str(number),
            Value::B(bytes) => serializer.collect_str(&Base64Display::new(bytes, &STANDARD)),
            Value::Bool(truth) => serializer.serialize_bool(*truth),
            Value::Null => serializer.serialize_bool(true),
            Value::M(map) => map.serialize(serializer),
            Value::L(list) => list.serialize(serializer),
            Value::Set(set) => serializer.collect_seq(set.iter().map(Bare)),
        }
    }
}
