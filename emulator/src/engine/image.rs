//! A stored item as JSON. It is serialised once when it is put, and shared by rows, undo history and stream records.

use std::sync::Arc;

use super::schema::Schema;
use crate::value::Item;

/// One version of one item.
///
/// The JSON is canonical: key attributes come first, the others are ordered by name, sets are sorted and numbers normalised.
/// So equal items have equal text, an answer copies it, and it takes about a third of the memory of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    members: Arc<[u8]>,
    keys_end: u32,
    size: u32,
}

impl Image {
    /// The image of an item that has the schema's key attributes.
    pub(crate) fn new(item: &Item, schema: &Schema) -> Self {
        let mut members = Vec::with_capacity(128);
        for name in schema.names() {
            if let Some(value) = item.get(name) {
                push_member(&mut members, name, value);
            }
        }
        let keys_end = members.len();
        for (name, value) in item.iter().filter(|(name, _)| !schema.names().any(|key| key == name.as_str())) {
            push_member(&mut members, name, value);
        }
        let narrow =
            |size: usize| u32::try_from(size).expect("an item's text is bounded by the request that carried it");
        Self { keys_end: narrow(keys_end), size: narrow(item.size()), members: members.into() }
    }

    /// All attributes, as the inside of a JSON object.
    pub(crate) fn members(&self) -> &[u8] {
        &self.members
    }

    /// The key attributes, as the inside of a JSON object.
    pub(crate) fn key_members(&self) -> &[u8] {
        &self.members[..self.keys_end as usize]
    }

    /// The size of the item in bytes, as DynamoDB counts it.
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }

    pub(crate) fn item(&self) -> Item {
        let mut object = Vec::with_capacity(self.members.len() + 2);
        object.push(b'{');
        object.extend_from_slice(&self.members);
        object.push(b'}');
        serde_json::from_slice(&object).expect("an image was written from a valid item")
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

fn push_member(members: &mut Vec<u8>, name: &str, value: &crate::value::Value) {
    const WRITTEN: &str = "a vector takes every write and the keys are strings";
    if !members.is_empty() {
        members.push(b',');
    }
    serde_json::to_writer(&mut *members, name).expect(WRITTEN);
    members.push(b':');
    serde_json::to_writer(&mut *members, value).expect(WRITTEN);
}
