//! Creates tables on an engine on one machine as the CloudFormation template has them, from which production creates
//! its own. `tables.json` has what such an engine needs of the template, so that the local stack is built without a
//! reader of YAML. A test compares the two.

use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, LocalSecondaryIndex, Projection, StreamSpecification,
    TableStatus, TimeToLiveSpecification,
};
use serde_json::Value;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::tables::{describe, find};

/// The tables of `infra/data.yaml`.
const TABLES: &str = include_str!("tables.json");
/// How the template writes the prefix of table names.
const PREFIX: &str = "${TablePrefix}";

/// How often a new table is looked at until it is active, and how long between.
const LOOKS: u32 = 600;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Creates the missing tables as the template has them, and waits until all can be used. Safe to repeat: a table that
/// is there stays as it is, except that its expiry is switched on. On AWS, CloudFormation is given the template.
pub async fn ensure_tables(connection: &Connection) -> Outcome<()> {
    let tables = tables(&connection.tables().prefix);
    for table in &tables {
        match creation(connection, table).send().await {
            Err(error) if error.code() == Some("ResourceInUseException") => {}
            created => created.map(|_| ()).map_err(|error| fault(text(&table["TableName"]), &error))?,
        }
    }
    for table in &tables {
        wait_until_active(connection, text(&table["TableName"])).await?;
        expire(connection, table).await?;
    }
    Ok(())
}

/// Returns what [`ensure_tables`] would do, a line for each table that it would create or change.
///
/// # Errors
/// The store gives no answer.
pub async fn lacking_tables(connection: &Connection) -> Outcome<Vec<String>> {
    let mut lacking = Vec::new();
    for table in tables(&connection.tables().prefix) {
        let name = text(&table["TableName"]);
        let attribute = table["TimeToLiveSpecification"]["AttributeName"].as_str();
        let expiry = attribute.map(|attribute| format!("expiry by `{attribute}`"));
        if find(connection, name).await?.is_none() {
            let stream = table["StreamSpecification"].is_object().then(|| "a stream of both images".to_owned());
            let with: Vec<String> = stream.into_iter().chain(expiry).collect();
            let with = if with.is_empty() { String::new() } else { format!(", with {}", with.join(" and ")) };
            lacking.push(format!("create table {name}{with}"));
        } else if let Some(expiry) = expiry
            && connection.expires(name).await?.is_none()
        {
            lacking.push(format!("switch on {expiry} of table {name}"));
        }
    }
    Ok(lacking)
}

/// Returns the tables of the template, each name behind `prefix`.
fn tables(prefix: &str) -> Vec<Value> {
    serde_json::from_str(&TABLES.replace(PREFIX, prefix)).expect("a test has read it")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn each<T>(list: &Value, element: impl Fn(&Value) -> T) -> Option<Vec<T>> {
    Some(list.as_array()?.iter().map(element).collect())
}

fn creation(connection: &Connection, table: &Value) -> CreateTableFluentBuilder {
    const SET: &str = "the template has what a table needs";
    let attribute = |attribute: &Value| {
        let kind = text(&attribute["AttributeType"]).into();
        let name = AttributeDefinition::builder().attribute_name(text(&attribute["AttributeName"]));
        name.attribute_type(kind).build().expect(SET)
    };
    let key = |key: &Value| {
        let name = KeySchemaElement::builder().attribute_name(text(&key["AttributeName"]));
        name.key_type(text(&key["KeyType"]).into()).build().expect(SET)
    };
    let index = |index: &Value| {
        let kind = text(&index["Projection"]["ProjectionType"]).into();
        LocalSecondaryIndex::builder()
            .index_name(text(&index["IndexName"]))
            .set_key_schema(each(&index["KeySchema"], key))
            .projection(Projection::builder().projection_type(kind).build())
            .build()
            .expect(SET)
    };
    let stream = table["StreamSpecification"]["StreamViewType"].as_str().map(|view| {
        let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(view.into());
        stream.build().expect(SET)
    });
    connection
        .client
        .create_table()
        .table_name(text(&table["TableName"]))
        .billing_mode(BillingMode::from(text(&table["BillingMode"])))
        .set_attribute_definitions(each(&table["AttributeDefinitions"], attribute))
        .set_key_schema(each(&table["KeySchema"], key))
        .set_local_secondary_indexes(each(&table["LocalSecondaryIndexes"], index))
        .set_stream_specification(stream)
}

/// Lets the store delete expired items. Safe to repeat: it changes nothing where that is on.
async fn expire(connection: &Connection, table: &Value) -> Outcome<()> {
    let name = text(&table["TableName"]);
    let Some(attribute) = table["TimeToLiveSpecification"]["AttributeName"].as_str() else { return Ok(()) };
    if connection.expires(name).await?.is_some() {
        return Ok(());
    }
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build();
    let ttl = ttl.expect("flag and attribute are set");
    let update = connection.client.update_time_to_live().table_name(name).time_to_live_specification(ttl);
    update.send().await.map(|_| ()).map_err(|error| fault(name, &error))
}

async fn wait_until_active(connection: &Connection, table: &str) -> Outcome<()> {
    for _ in 0..LOOKS {
        if describe(connection, table).await?.table_status() == Some(&TableStatus::Active) {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Err(Fault::Transient(format!("table {table} is not active yet")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::Tables;

    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Table {
        #[serde(rename = "TableName")]
        name: String,
        billing_mode: String,
        attribute_definitions: Vec<Attribute>,
        key_schema: Vec<Key>,
        #[serde(default)]
        local_secondary_indexes: Vec<Index>,
        stream_specification: Option<Stream>,
        time_to_live_specification: Option<Expiry>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Attribute {
        attribute_name: String,
        attribute_type: String,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Key {
        attribute_name: String,
        key_type: String,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Index {
        index_name: String,
        key_schema: Vec<Key>,
        projection: Kind,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Kind {
        projection_type: String,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Stream {
        stream_view_type: String,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "PascalCase", deny_unknown_fields)]
    struct Expiry {
        attribute_name: String,
        enabled: bool,
    }

    /// Fields that mean nothing to an engine on one machine: how a table is paid, kept and found.
    const ELSEWHERE: [&str; 7] = [
        "DeletionProtectionEnabled",
        "OnDemandThroughput",
        "PointInTimeRecoverySpecification",
        "ProvisionedThroughput",
        "SSESpecification",
        "Tags",
        "WarmThroughput",
    ];

    /// Reads the tables of a template in the form of `tables.json`. Skips what is no table, and fields that mean
    /// nothing here. Refuses any other unknown field and a table of another kind by its name, since tables without it
    /// would be others.
    fn tables_of(template: &str) -> Result<Value, String> {
        let template: Value = serde_saphyr::from_str(template).map_err(|error| error.to_string())?;
        let mut tables = Vec::new();
        for (name, resource) in template["Resources"].as_object().ok_or("no resources")? {
            match resource["Type"].as_str().unwrap_or_default() {
                "AWS::DynamoDB::Table" => {}
                kind if kind.starts_with("AWS::DynamoDB::") => return Err(format!("{name}: {kind}")),
                _ => continue,
            }
            let mut table = resource["Properties"].clone();
            let fields = table.as_object_mut().ok_or_else(|| format!("{name}: no properties"))?;
            fields.retain(|field, _| !ELSEWHERE.contains(&field.as_str()));
            for value in fields.values_mut() {
                // A reference to a parameter is read as the parameter's name.
                let parameter = value.as_str().and_then(|text| template["Parameters"][text].get("Default"));
                if let Some(default) = parameter {
                    *value = default.clone();
                }
            }
            serde_json::from_value::<Table>(table.clone()).map_err(|error| format!("{name}: {error}"))?;
            tables.push(table);
        }
        tables.sort_by_key(|table| table["TableName"].to_string());
        Ok(Value::Array(tables))
    }

    const TEMPLATE: &str = include_str!("../../../infra/data.yaml");

    #[test]
    fn the_tables_are_those_of_the_template() {
        let tables = tables_of(TEMPLATE).unwrap();
        let written: Value = serde_json::from_str(TABLES).unwrap();
        assert!(written == tables, "write into tables.json:\n{tables:#}");
    }

    #[test]
    fn what_means_nothing_here_is_passed_over() {
        let without = TEMPLATE.lines().filter(|line| !line.contains("DeletionProtectionEnabled:"));
        assert_eq!(tables_of(&without.collect::<Vec<_>>().join("\n")), tables_of(TEMPLATE));
        let key = TEMPLATE.replace("\nOutputs:", "\n  Key:\n    Type: AWS::KMS::Key\n\nOutputs:");
        assert_ne!(key, TEMPLATE);
        assert_eq!(tables_of(&key), tables_of(TEMPLATE));
    }

    #[test]
    fn what_would_make_another_table_is_refused_by_its_name() {
        let with =
            |field: &str| TEMPLATE.replacen("      KeySchema:\n", &format!("      {field}\n      KeySchema:\n"), 1);
        for field in [
            "GlobalSecondaryIndexes: []",
            "TableClass: STANDARD",
            "KinesisStreamSpecification: {}",
            "ImportSourceSpecification: {}",
        ] {
            let name = field.split(':').next().unwrap_or_default();
            let refused = tables_of(&with(field)).unwrap_err();
            assert!(refused.contains(&format!("unknown field `{name}`")), "{refused}");
        }
        let global = TEMPLATE.replacen("Type: AWS::DynamoDB::Table\n", "Type: AWS::DynamoDB::GlobalTable\n", 1);
        assert!(tables_of(&global).unwrap_err().contains("AWS::DynamoDB::GlobalTable"));
        let projected =
            TEMPLATE.replace("{ ProjectionType: KEYS_ONLY }", "{ ProjectionType: INCLUDE, NonKeyAttributes: [n] }");
        assert!(tables_of(&projected).unwrap_err().contains("unknown field `NonKeyAttributes`"));
    }

    #[test]
    fn the_template_has_the_tables_that_the_code_names() {
        let created: Vec<String> = tables("t-").iter().map(|table| text(&table["TableName"]).to_owned()).collect();
        let Tables { likes, counts, checkpoints, recounts, .. } = Tables::with_prefix("t-");
        assert_eq!(created, [checkpoints, counts, likes, recounts]);
    }

    #[test]
    fn only_the_rows_have_a_stream_and_an_index_and_tombstones_and_recounts_expire() {
        for table in tables("") {
            let table: Table = serde_json::from_value(table).unwrap();
            let is = |name: &str| table.name == name;
            assert_eq!(table.stream_specification.is_some(), is("likes"), "{}", table.name);
            assert_eq!(table.local_secondary_indexes.len(), usize::from(is("likes")), "{}", table.name);
            let expiry = table.time_to_live_specification.as_ref();
            assert!(expiry.is_none_or(|expiry| expiry.enabled), "{}", table.name);
            let expiry = expiry.map(|expiry| expiry.attribute_name.as_str());
            let expected = is("recounts").then_some("ttl").or(is("likes").then_some("gone"));
            assert_eq!(expiry, expected, "{}", table.name);
        }
    }
}
