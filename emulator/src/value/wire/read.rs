//! Parses DynamoDB's values and items directly from JSON text, with DynamoDB's error messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::DecodeError;
use base64::engine::{Engine, general_purpose::STANDARD};
use bytes::Bytes;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{EXPECTED, VALIDATION, Values};
use crate::limits::NAME_BYTES;
use crate::value::{Item, MAX_DEPTH, NAME_TOO_LONG, NESTED_TOO_DEEP, Value};

const NO_TYPE: &str = "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes";
const TWO_TYPES: &str =
    "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes";

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Tagged(Place::default()).deserialize(deserializer)
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Attributes { place: Place::default(), placeholders: false }).map(Self)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Attributes { place: Place::default(), placeholders: true }).map(Self)
    }
}

/// The descriptor of a value's type.
#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "UPPERCASE")]
enum Tag {
    S,
    N,
    B,
    Bool,
    Null,
    M,
    L,
    Ss,
    Ns,
    Bs,
    #[serde(other)]
    Unknown,
}

impl Tag {
    fn java_class(self) -> &'static str {
        match self {
            Self::S | Self::N => "String",
            Self::B => "ByteBuffer",
            Self::Bool | Self::Null => "Boolean",
            Self::M => "Map",
            Self::L | Self::Ss | Self::Ns | Self::Bs | Self::Unknown => "List",
        }
    }
}

/// The position of a value in a request: its depth, and its placeholder if it has one.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    depth: usize,
    placeholder: Option<&'a str>,
}

impl Place<'_> {
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    fn invalid<E: de::Error>(self, rule: impl fmt::Display) -> E {
        match self.placeholder {
            Some(key) => E::custom(format_args!(
                "{VALIDATION}ExpressionAttributeValues contains invalid value: {rule} for key {key}"
            )),
            None => E::custom(format_args!("{VALIDATION}{rule}")),
        }
    }

    fn invalid_parameter<E: de::Error>(self, rule: impl fmt::Display) -> E {
        self.invalid(format_args!("One or more parameter values were invalid: {rule}"))
    }
}

/// Parses `{"S": ".."}`.
struct Tagged<'a>(Place<'a>);

impl<'de> DeserializeSeed<'de> for Tagged<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0.depth >= MAX_DEPTH {
            return Err(self.0.invalid(NESTED_TOO_DEEP));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tagged<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{EXPECTED}Unexpected value type in payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut tags: A) -> Result<Value, A::Error> {
        let mut value = None;
        while let Some(tag) = tags.next_key()? {
            if let Tag::Unknown = tag {
                tags.next_value::<IgnoredAny>()?;
                continue;
            }
            if let Some(content) = tags.next_value_seed(Content { tag, place: self.0 })?
                && value.replace(content).is_some()
            {
                return Err(self.0.invalid(TWO_TYPES));
            }
        }
        value.ok_or_else(|| self.0.invalid(NO_TYPE))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Err(self.0.invalid(NO_TYPE))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(de::Error::custom("Unrecognized collection type class com.amazonaws.dynamodb.v20120810.AttributeValue"))
    }
}

/// Parses the value after a descriptor. Null counts as absent.
struct Content<'a> {
    tag: Tag,
    place: Place<'a>,
}

impl Content<'_> {
    fn inconvertible<E: de::Error>(&self, token: &str) -> E {
        match self.tag {
            Tag::B => E::custom("only base-64-encoded strings are convertible to bytes"),
            Tag::S | Tag::N | Tag::Bool | Tag::Null => {
                E::custom(format_args!("{token} cannot be converted to {}", self.tag.java_class()))
            }
            _ => E::custom("Unexpected field type"),
        }
    }

    /// Parses a set, whose members are at least one, all different, and parsed as `tag`.
    fn set<'de, A: SeqAccess<'de>>(&self, mut list: A, tag: Tag) -> Result<BTreeSet<Value>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = list.next_element_seed(Content { tag, place: self.place })? {
            let no_null = || self.place.invalid_parameter("An attribute value set may not have a null member");
            members.push(member.ok_or_else(no_null)?);
        }
        if members.is_empty() {
            return Err(self.place.invalid_parameter(match tag {
                Tag::N => "An number set  may not be empty",
                Tag::B => "Binary sets should not be empty",
                _ => "An string set  may not be empty",
            }));
        }
        let set: BTreeSet<Value> = members.iter().cloned().collect();
        if set.len() == members.len() {
            return Ok(set);
        }
        let shown = members.iter().filter_map(|member| match member {
            Value::S(text) => Some(text.clone()),
            Value::B(bytes) => Some(STANDARD.encode(bytes)),
            _ => None,
        });
        let kind = match tag {
            Tag::N => return Err(self.place.invalid("Input collection contains duplicates")),
            Tag::B => "of type BS",
            _ => "",
        };
        let shown = shown.collect::<Vec<_>>().join(", ");
        Err(self.place.invalid_parameter(format_args!("Input collection [{shown}]{kind} contains duplicates.")))
    }
}

fn decode(text: &str) -> Result<Bytes, String> {
    if !text.len().is_multiple_of(4) {
        return Err(format!("Base64 encoded length is expected a multiple of 4 bytes but found: {}", text.len()));
    }
    STANDARD.decode(text).map(Bytes::from).map_err(|error| match error {
        DecodeError::InvalidByte(_, byte) if byte != b'=' => {
            format!("Invalid Base64 character: '{}'", char::from(byte))
        }
        _ => "Invalid last non-pad Base64 character dectected".to_owned(),
    })
}

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag.java_class())
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<Value>, E> {
        match self.tag {
            Tag::S => Ok(Some(Value::S(text.to_owned()))),
            Tag::N => text.parse().map(|number| Some(Value::N(number))).map_err(|rule| self.place.invalid(rule)),
            Tag::B => decode(text).map(|bytes| Some(Value::B(bytes))).map_err(E::custom),
            Tag::Bool | Tag::Null => Err(E::custom("Unexpected token received from parser")),
            _ => Err(E::custom("Unexpected field type")),
        }
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Option<Value>, E> {
        match (self.tag, truth) {
            (Tag::Bool, _) => Ok(Some(Value::Bool(truth))),
            (Tag::Null, true) => Ok(Some(Value::Null)),
            (Tag::Null, false) => {
                Err(self.place.invalid_parameter("Null attribute value types must have the value of true"))
            }
            (_, true) => Err(self.inconvertible("TRUE_VALUE")),
            (_, false) => Err(self.inconvertible("FALSE_VALUE")),
        }
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Option<Value>, E> {
        Err(self.inconvertible("NUMBER_VALUE"))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Option<Value>, E> {
        Err(self.inconvertible("NUMBER_VALUE"))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Option<Value>, E> {
        Err(self.inconvertible("DECIMAL_VALUE"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Value>, A::Error> {
        match self.tag {
            Tag::L => {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element_seed(Tagged(self.place.deeper()))? {
                    elements.push(element);
                }
                Ok(Some(Value::L(elements)))
            }
            Tag::Ss => self.set(list, Tag::S).map(|set| Some(Value::Set(set))),
            Tag::Ns => self.set(list, Tag::N).map(|set| Some(Value::Set(set))),
            Tag::Bs => self.set(list, Tag::B).map(|set| Some(Value::Set(set))),
            _ => Err(de::Error::custom(format_args!(
                "Unrecognized collection type class java.lang.{}",
                self.tag.java_class()
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, attributes: A) -> Result<Option<Value>, A::Error> {
        match self.tag {
            Tag::M => Attributes { place: self.place.deeper(), placeholders: false }
                .visit_map(attributes)
                .map(|map| Some(Value::M(map))),
            _ => Err(de::Error::custom("Start of structure or map found where not expected")),
        }
    }
}

/// Parses a map of names, or of placeholders, to values.
struct Attributes<'a> {
    place: Place<'a>,
    placeholders: bool,
}

impl Attributes<'_> {
    fn check_name<E: de::Error>(&self, name: &str) -> Result<(), E> {
        match name.len() {
            0 => Err(self.place.invalid_parameter("Empty attribute name")),
            1..=NAME_BYTES => Ok(()),
            _ => Err(self.place.invalid_parameter(NAME_TOO_LONG)),
        }
    }
}

impl<'de> Visitor<'de> for Attributes<'_> {
    type Value = BTreeMap<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{EXPECTED}Unexpected field type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut attributes: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(name) = attributes.next_key::<String>()? {
            let place = if self.placeholders { Place { placeholder: Some(&name), ..self.place } } else { self.place };
            if !self.placeholders {
                self.check_name(&name)?;
            }
            let value = attributes.next_value_seed(Tagged(place))?;
            map.insert(name, value);
        }
        Ok(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(de::Error::custom("Unrecognized collection type java.util.Map"))
    }
}
