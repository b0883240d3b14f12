//! The consumer's transaction as it goes over the wire: up to 99 rows beside a fence, each written straight into the request.

use aws_sdk_dynamodb::types::Update;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use tally_core::time::UnixMillis;

use super::super::direct::{AsItem, Number, Text};
use super::super::names::PK;
use super::super::names::likes::{LIKED_AT, POST_ID, REGION, USER_ID};

/// All of it or nothing.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Transaction<'a> {
    transact_items: Vec<Write<'a>>,
}

/// One write of it.
pub(super) enum Write<'a> {
    /// Under a condition of its own.
    Update(Update),
    /// Into this table.
    Put(&'a str, Row<'a>),
    /// From this table: partition and sort key.
    Delete(&'a str, String, &'a str),
}

/// A member's row.
pub(super) struct Row<'a> {
    pub(super) pk: String,
    pub(super) user: &'a str,
    pub(super) post: &'a str,
    pub(super) liked_at: UnixMillis,
    pub(super) region: Option<&'a str>,
}

impl<'a> Transaction<'a> {
    pub(super) fn of(transact_items: Vec<Write<'a>>) -> Self {
        Self { transact_items }
    }
}

impl Serialize for Write<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Put<'a> {
            table_name: &'a str,
            item: &'a Row<'a>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Delete<'a> {
            table_name: &'a str,
            key: Key<'a>,
        }
        let mut write = serializer.serialize_map(Some(1))?;
        match self {
            Self::Update(update) => write.serialize_entry("Update", &Conditional(update))?,
            Self::Put(table_name, item) => write.serialize_entry("Put", &Put { table_name, item })?,
            Self::Delete(table_name, pk, user) => {
                write.serialize_entry("Delete", &Delete { table_name, key: Key(pk, user) })?;
            }
        }
        write.end()
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        row.serialize_entry(PK, &Text(&self.pk))?;
        row.serialize_entry(USER_ID, &Text(self.user))?;
        row.serialize_entry(POST_ID, &Text(self.post))?;
        row.serialize_entry(LIKED_AT, &Number(self.liked_at.0))?;
        if let Some(region) = self.region {
            row.serialize_entry(REGION, &Text(region))?;
        }
        row.end()
    }
}

struct Key<'a>(&'a str, &'a str);

impl Serialize for Key<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(PK, Text(self.0)), (USER_ID, Text(self.1))])
    }
}

struct Conditional<'a>(&'a Update);

impl Serialize for Conditional<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut update = serializer.serialize_map(None)?;
        update.serialize_entry("TableName", self.0.table_name())?;
        update.serialize_entry("Key", &AsItem(self.0.key()))?;
        update.serialize_entry("UpdateExpression", self.0.update_expression())?;
        if let Some(condition) = self.0.condition_expression() {
            update.serialize_entry("ConditionExpression", condition)?;
        }
        if let Some(names) = self.0.expression_attribute_names() {
            update.serialize_entry("ExpressionAttributeNames", names)?;
        }
        if let Some(values) = self.0.expression_attribute_values() {
            update.serialize_entry("ExpressionAttributeValues", &AsItem(values))?;
        }
        update.end()
    }
}
