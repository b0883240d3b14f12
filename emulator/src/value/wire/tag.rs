//! The tags that say of what type a value is.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

#[derive(Clone, Copy)]
pub(super) enum Tag {
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
    Unknown,
}

impl Tag {
    pub(super) fn java_class(self) -> &'static str {
        match self {
            Self::S | Self::N => "String",
            Self::B => "ByteBuffer",
            Self::Bool | Self::Null => "Boolean",
            Self::M => "Map",
            Self::L | Self::Ss | Self::Ns | Self::Bs | Self::Unknown => "List",
        }
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TagVisitor;
        impl Visitor<'_> for TagVisitor {
            type Value = Tag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a type tag")
            }

            fn visit_str<E>(self, tag: &str) -> Result<Tag, E> {
                Ok(match tag {
                    "S" => Tag::S,
                    "N" => Tag::N,
                    "B" => Tag::B,
                    "BOOL" => Tag::Bool,
                    "NULL" => Tag::Null,
                    "M" => Tag::M,
                    "L" => Tag::L,
                    "SS" => Tag::Ss,
                    "NS" => Tag::Ns,
                    "BS" => Tag::Bs,
                    _ => Tag::Unknown,
                })
            }
        }
        deserializer.deserialize_identifier(TagVisitor)
    }
}
