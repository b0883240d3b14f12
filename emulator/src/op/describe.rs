//! The operations DescribeTable and ListTables, and the description of a table that the answers of several operations
//! contain.

use serde::Deserialize;
use serde_json::json;

use crate::clock::Millis;
use crate::engine::Engine;
use crate::engine::schema::KeyAttribute;
use crate::engine::table::{LocalIndex, Table};
use crate::error::Error;
use crate::json::Writer;
use crate::limits::TABLES_PAGE;

use super::params::{TableRequest, page_limit};

/// Describes one table.
pub(super) fn describe_table(request: TableRequest, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let name = request.checked_name()?;
    let table = engine.tables.get(&name).ok_or_else(|| no_table(&name))?;
    Ok(described("Table", table))
}

pub(super) fn no_table(name: &str) -> Error {
    Error::not_found(format!("Requested resource not found: Table: {name} not found"))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListTables {
    exclusive_start_table_name: Option<String>,
    limit: Option<i64>,
}

/// Lists the tables.
pub(super) fn list(request: ListTables, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let limit = page_limit(request.limit, TABLES_PAGE)?;
    let after = request.exclusive_start_table_name;
    let names = engine.tables.keys().filter(|name| after.as_ref().is_none_or(|after| *name > after));
    let names: Vec<&String> = names.take(limit + 1).collect();
    let page = &names[..names.len().min(limit)];
    Ok(Writer::document(|out| {
        out.key("TableNames").serialize(page);
        if let (true, Some(last)) = (names.len() > limit, page.last()) {
            out.key("LastEvaluatedTableName").string(last);
        }
    }))
}

/// An answer whose only member describes a table.
pub(super) fn described(member: &str, table: &Table) -> Vec<u8> {
    let mut description = standing(table, "ACTIVE");
    description["CreationDateTime"] = json!(seconds(table.created));
    description["AttributeDefinitions"] = attribute_definitions(table);
    description["KeySchema"] = key_schema(&table.schema.hash, table.schema.range.as_ref());
    if !table.indexes.is_empty() {
        let indexes = table.indexes.iter().map(|index| described_index(table, index));
        description["LocalSecondaryIndexes"] = indexes.collect();
    }
    Writer::document(|out| out.key(member).serialize(&description))
}

/// The answer about a deleted table, which has neither keys nor indexes.
pub(super) fn described_deleted(table: &Table) -> Vec<u8> {
    Writer::document(|out| out.key("TableDescription").serialize(&standing(table, "DELETING")))
}

/// The part of a description that a table has in every state.
fn standing(table: &Table, status: &str) -> serde_json::Value {
    let (read, write) = table.provisioned.unwrap_or((0, 0));
    let mut description = json!({
        "TableName": table.name,
        "TableArn": table.arn,
        "TableId": table.id,
        "TableStatus": status,
        "ProvisionedThroughput": {
            "NumberOfDecreasesToday": 0, "ReadCapacityUnits": read, "WriteCapacityUnits": write,
        },
        "ItemCount": table.rows.len(),
        "TableSizeBytes": table.bytes,
        "DeletionProtectionEnabled": table.protected,
    });
    if table.provisioned.is_none() {
        description["BillingModeSummary"] = json!({
            "BillingMode": "PAY_PER_REQUEST", "LastUpdateToPayPerRequestDateTime": seconds(table.created),
        });
    }
    if let Some(stream) = &table.stream {
        description["StreamSpecification"] = json!({"StreamEnabled": true, "StreamViewType": stream.view});
        description["LatestStreamLabel"] = json!(stream.label);
        description["LatestStreamArn"] = json!(stream.arn);
    }
    description
}

fn described_index(table: &Table, index: &LocalIndex) -> serde_json::Value {
    json!({
        "IndexName": index.name,
        "IndexArn": format!("{}/index/{}", table.arn, index.name),
        "KeySchema": key_schema(&table.schema.hash, Some(&index.range)),
        "Projection": {"ProjectionType": index.projection},
        "ItemCount": 0,
        "IndexSizeBytes": 0,
    })
}

fn attribute_definitions(table: &Table) -> serde_json::Value {
    let mut attributes: Vec<&KeyAttribute> = table.schema.attributes().collect();
    for index in &table.indexes {
        if !attributes.contains(&&index.range) {
            attributes.push(&index.range);
        }
    }
    let define =
        |attribute: &KeyAttribute| json!({"AttributeName": attribute.name, "AttributeType": attribute.key_type});
    attributes.into_iter().map(define).collect()
}

/// The description of a key schema, also for streams.
pub(super) fn key_schema(hash: &KeyAttribute, range: Option<&KeyAttribute>) -> serde_json::Value {
    let element =
        |attribute: &KeyAttribute, key_type: &str| json!({"AttributeName": attribute.name, "KeyType": key_type});
    std::iter::once(element(hash, "HASH")).chain(range.map(|range| element(range, "RANGE"))).collect()
}

/// A time in the protocol's form: seconds with three decimals.
pub(super) fn seconds(at: Millis) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 stay below 2^53 for 285,000 years")]
    let millis = at as f64;
    millis / 1000.0
}
