//! Attribute values as JSON.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::base64;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};

use super::super::item::Item;

/// A key of one text.
#[derive(Debug)]
pub(in super::super) struct AsKey<'a>(pub(in super::super) &'a str, pub(in super::super) &'a str);

impl Serialize for AsKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, Text(self.1))])
    }
}

/// A text.
#[derive(Debug)]
pub(in super::super) struct Text<'a>(pub(in super::super) &'a str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("S", self.0)])
    }
}

/// A number that is not negative.
#[derive(Debug)]
pub(in super::super) struct Number(pub(in super::super) u64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("N", format_args!("{}", self.0))])
    }
}

/// A key, or an expression's values by their aliases.
#[derive(Debug)]
pub(in super::super) struct AsItem<'a>(pub(in super::super) &'a Item);

impl Serialize for AsItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, Simple(value))))
    }
}

/// The values `:0`, `:1` and so on of an expression.
#[derive(Debug)]
pub(in super::super) struct AsValues<'a>(pub(in super::super) &'a [AttributeValue]);

impl Serialize for AsValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (nth, value) in self.0.iter().enumerate() {
            map.serialize_entry(&format_args!(":{nth}"), &Simple(value))?;
        }
        map.end()
    }
}

/// A value of those that our expressions have.
struct Simple<'a>(&'a AttributeValue);

impl Serialize for Simple<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            AttributeValue::S(text) => map.serialize_entry("S", text)?,
            AttributeValue::N(digits) => map.serialize_entry("N", digits)?,
            AttributeValue::Bool(flag) => map.serialize_entry("BOOL", flag)?,
            other => return Err(serde::ser::Error::custom(format!("a value of an expression is {other:?}"))),
        }
        map.end()
    }
}

/// An item as the SDK would have it.
pub(super) fn item<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
    deserializer.deserialize_map(Attributes)
}

struct Attributes;

impl<'de> Visitor<'de> for Attributes {
    type Value = Item;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an item")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Item, A::Error> {
        let mut item = Item::with_capacity(entries.size_hint().unwrap_or(16));
        while let Some((name, value)) = entries.next_entry::<String, Wire>()? {
            item.insert(name, value.read().map_err(A::Error::custom)?);
        }
        Ok(item)
    }
}

#[derive(Deserialize)]
enum Wire {
    S(String),
    N(String),
    B(String),
    #[serde(rename = "BOOL")]
    Bool(bool),
    #[serde(rename = "NULL")]
    Null(bool),
    #[serde(rename = "SS")]
    Texts(Vec<String>),
    #[serde(rename = "NS")]
    Numbers(Vec<String>),
    #[serde(rename = "BS")]
    Blobs(Vec<String>),
    L(Vec<Wire>),
    M(HashMap<String, Wire>),
}

impl Wire {
    fn read(self) -> Result<AttributeValue, base64::DecodeError> {
        let blob = |text: String| base64::decode(text).map(Blob::new);
        Ok(match self {
            Self::S(text) => AttributeValue::S(text),
            Self::N(digits) => AttributeValue::N(digits),
            Self::B(text) => AttributeValue::B(blob(text)?),
            Self::Bool(flag) => AttributeValue::Bool(flag),
            Self::Null(is) => AttributeValue::Null(is),
            Self::Texts(texts) => AttributeValue::Ss(texts),
            Self::Numbers(numbers) => AttributeValue::Ns(numbers),
            Self::Blobs(blobs) => AttributeValue::Bs(blobs.into_iter().map(blob).collect::<Result<_, _>>()?),
            Self::L(elements) => AttributeValue::L(elements.into_iter().map(Self::read).collect::<Result<_, _>>()?),
            Self::M(entries) => {
                let entries = entries.into_iter().map(|(name, value)| Ok((name, value.read()?)));
                AttributeValue::M(entries.collect::<Result<_, _>>()?)
            }
        })
    }
}
