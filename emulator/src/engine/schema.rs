//! The key attributes of a table or a local index, and the checks that an item fits them.

use super::key::Key;
use crate::error::Error;
use crate::limits::{HASH_KEY_BYTES, RANGE_KEY_BYTES};
use crate::value::{Item, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyAttribute {
    pub(crate) name: String,
    /// The descriptor of its type: `S`, `N` or `B`.
    pub(crate) key_type: &'static str,
}

/// A partition key, and optionally a sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    pub(crate) hash: KeyAttribute,
    pub(crate) range: Option<KeyAttribute>,
}

impl Schema {
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &KeyAttribute> {
        std::iter::once(&self.hash).chain(&self.range)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.attributes().map(|attribute| attribute.name.as_str())
    }

    /// The key of an item that is to be stored.
    pub(crate) fn key_of_item(&self, item: &Item) -> Result<Key, Error> {
        self.key_with(|KeyAttribute { name, key_type }| match item.get(name) {
            None => Err(Error::parameters(format!("Missing the key {name} in the item"))),
            Some(value) if value.type_code() != *key_type => {
                let found = value.type_code();
                let mismatch = format!("Type mismatch for key {name} expected: {key_type} actual: {found}");
                Err(Error::parameters(mismatch))
            }
            Some(value) => Ok(value),
        })
    }

    /// The key from a request's `Key`, which must have exactly the key attributes.
    pub(crate) fn key_of(&self, key: &Item) -> Result<Key, Error> {
        let mismatch = || Error::validation("The provided key element does not match the schema");
        if key.0.len() != self.names().count() {
            return Err(mismatch());
        }
        self.key_with(|attribute| {
            let value = key.get(&attribute.name).ok_or_else(mismatch)?;
            if value.type_code() == attribute.key_type { Ok(value) } else { Err(mismatch()) }
        })
    }

    fn key_with<'a>(&self, value_of: impl Fn(&KeyAttribute) -> Result<&'a Value, Error>) -> Result<Key, Error> {
        let hash = value_of(&self.hash)?;
        check_size(&self.hash.name, hash, HASH_KEY_BYTES, || {
            format!("Size of hashkey has exceeded the maximum size limit of{HASH_KEY_BYTES} bytes")
        })?;
        let Some(range) = &self.range else { return Ok(Key::new(hash, &[])) };
        let sort = value_of(range)?;
        range.check_size(sort)?;
        Ok(Key::new(hash, &[sort]))
    }
}

impl KeyAttribute {
    /// Checks that this value is not too large for a sort key.
    pub(crate) fn check_size(&self, sort: &Value) -> Result<(), Error> {
        check_size(&self.name, sort, RANGE_KEY_BYTES, || {
            format!("Aggregated size of all range keys has exceeded the size limit of {RANGE_KEY_BYTES} bytes")
        })
    }
}

fn check_size(name: &str, value: &Value, limit: usize, message: impl Fn() -> String) -> Result<(), Error> {
    let (length, kind) = match value {
        Value::S(text) => (text.len(), "string"),
        Value::B(bytes) => (bytes.len(), "binary"),
        _ => return Ok(()),
    };
    if length == 0 {
        return Err(Error::validation(format!(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty {kind} value. Key: {name}"
        )));
    }
    if length > limit {
        return Err(Error::parameters(message()));
    }
    Ok(())
}
