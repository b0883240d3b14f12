//! Writes values as DynamoDB does, with numbers in their canonical form.

use std::fmt;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::value::{Item, Value};

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tagged = serializer.serialize_map(Some(1))?;
        tagged.serialize_key(self.type_code())?;
        match self {
            Self::S(text) => tagged.serialize_value(text),
            Self::N(number) => tagged.serialize_value(&Shown(number)),
            Self::B(bytes) => tagged.serialize_value(&Shown(Base64Display::new(bytes, &STANDARD))),
            Self::Bool(truth) => tagged.serialize_value(truth),
            Self::Null => tagged.serialize_value(&true),
            Self::M(map) => tagged.serialize_value(map),
            Self::L(list) => tagged.serialize_value(list),
            Self::Ss(set) => tagged.serialize_value(set),
            Self::Ns(set) => tagged.serialize_value(&Each(set.iter().map(Shown))),
            Self::Bs(set) => {
                tagged.serialize_value(&Each(set.iter().map(|bytes| Shown(Base64Display::new(bytes, &STANDARD)))))
            }
        }?;
        tagged.end()
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Serialises a value as the string that it displays.
struct Shown<T>(T);

impl<T: fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Serialises an iterator as a list.
struct Each<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}
