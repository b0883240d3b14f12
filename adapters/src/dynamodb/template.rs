//! Tables created as the CloudFormation template has them that production creates them from. What an engine on one machine
//! needs of it is kept as JSON beside this file, so that the local stack is built without a reader of YAML; a test holds the
//! two against each other.

use std::time::Duration;

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata as _};
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, LocalSecondaryIndex, Projection, StreamSpecification,
    TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use serde::Deserialize;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::tables::{describe, find};

/// The tables of `infra/data.yaml`.
const TABLES: &str = include_str!("tables.json");
/// How the template writes the prefix of a table's name.
const PREFIX: &str = "${TablePrefix}";

/// How often a table being created is looked at, and how long between.
const LOOKS: u32 = 600;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Creates the tables that are not there, as the template has them, and waits until all can be used. Safe to repeat: a
/// table that is there stays as it is, but for an expiry that is off. On AWS the template is given to CloudFormation instead.
pub async fn ensure_tables(connection: &Connection) -> Outcome<()> {
    let tables = tables(&connection.tables().prefix)?;
    for table in &tables {
        let create = table.creation(connection).map_err(|error| Fault::Fatal(format!("template: {error}")))?;
        match create.send().await {
            Err(error) if error.code() == Some("ResourceInUseException") => {}
            created => created.map(|_| ()).map_err(|error| fault(&table.name, &error))?,
        }
    }
    for table in &tables {
        wait_until_active(connection, &table.name).await?;
        table.expire(connection).await?;
    }
    Ok(())
}

/// What [`ensure_tables`] would do, a line for each table that it would create or change.
///
/// # Errors
/// The store gives no answer.
pub async fn lacking_tables(connection: &Connection) -> Outcome<Vec<String>> {
    let mut lacking = Vec::new();
    for table in tables(&connection.tables().prefix)? {
        let expiry = table.expiry().map(|attribute| format!("expiry by `{attribute}`"));
        if find(connection, &table.name).await?.is_none() {
            let stream = table.stream_specification.as_ref().map(|_| "a stream of both images".to_owned());
            let with: Vec<String> = stream.into_iter().chain(expiry).collect();
            let with = if with.is_empty() { String::new() } else { format!(", with {}", with.join(" and ")) };
            lacking.push(format!("create table {}{with}", table.name));
        } else if let (true, Some(expiry)) = (table.lacks_expiry(connection).await?, expiry) {
            lacking.push(format!("switch on {expiry} of table {}", table.name));
        }
    }
    Ok(lacking)
}

/// The tables of the template, their names behind `prefix`.
fn tables(prefix: &str) -> Outcome<Vec<Table>> {
    let tables: Vec<Table> =
        serde_json::from_str(TABLES).map_err(|error| Fault::Fatal(format!("tables.json: {error}")))?;
    let named = |table: Table| Table { name: table.name.replace(PREFIX, prefix), ..table };
    Ok(tables.into_iter().map(named).collect())
}

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

impl Table {
    fn creation(&self, connection: &Connection) -> Result<CreateTableFluentBuilder, BuildError> {
        let attribute = |attribute: &Attribute| {
            let name = AttributeDefinition::builder().attribute_name(&attribute.attribute_name);
            name.attribute_type(attribute.attribute_type.as_str().into()).build()
        };
        let attributes = self.attribute_definitions.iter().map(attribute).collect::<Result<Vec<_>, _>>()?;
        let indexes = self.local_secondary_indexes.iter().map(Index::definition).collect::<Result<Vec<_>, _>>()?;
        let stream = self.stream_specification.as_ref().map(|stream| {
            let view = stream.stream_view_type.as_str().into();
            StreamSpecification::builder().stream_enabled(true).stream_view_type(view).build()
        });
        Ok(connection
            .client
            .create_table()
            .table_name(&self.name)
            .billing_mode(BillingMode::from(self.billing_mode.as_str()))
            .set_attribute_definitions(Some(attributes))
            .set_key_schema(Some(elements(&self.key_schema)?))
            .set_local_secondary_indexes((!indexes.is_empty()).then_some(indexes))
            .set_stream_specification(stream.transpose()?))
    }

    /// The attribute that items expire by.
    fn expiry(&self) -> Option<&str> {
        let expiry = self.time_to_live_specification.as_ref().filter(|expiry| expiry.enabled)?;
        Some(&expiry.attribute_name)
    }

    /// Whether items are to expire, and do not by any attribute.
    async fn lacks_expiry(&self, connection: &Connection) -> Outcome<bool> {
        if self.expiry().is_none() {
            return Ok(false);
        }
        let described = connection.client.describe_time_to_live().table_name(&self.name).send().await;
        let described = described.map_err(|error| fault(&self.name, &error))?.time_to_live_description;
        let status = described.as_ref().and_then(|ttl| ttl.time_to_live_status());
        Ok(!matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)))
    }

    /// Lets the store delete what has expired. Safe to repeat: left alone where it is on.
    async fn expire(&self, connection: &Connection) -> Outcome<()> {
        let (true, Some(attribute)) = (self.lacks_expiry(connection).await?, self.expiry()) else { return Ok(()) };
        let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build();
        let ttl = ttl.expect("flag and attribute are set");
        let update = connection.client.update_time_to_live().table_name(&self.name).time_to_live_specification(ttl);
        update.send().await.map(|_| ()).map_err(|error| fault(&self.name, &error))
    }
}

impl Index {
    fn definition(&self) -> Result<LocalSecondaryIndex, BuildError> {
        let kind = self.projection.projection_type.as_str().into();
        LocalSecondaryIndex::builder()
            .index_name(&self.index_name)
            .set_key_schema(Some(elements(&self.key_schema)?))
            .projection(Projection::builder().projection_type(kind).build())
            .build()
    }
}

fn elements(keys: &[Key]) -> Result<Vec<KeySchemaElement>, BuildError> {
    let element = |key: &Key| {
        let name = KeySchemaElement::builder().attribute_name(&key.attribute_name);
        name.key_type(key.key_type.as_str().into()).build()
    };
    keys.iter().map(element).collect()
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

    use serde_json::Value;

    /// What means nothing to an engine on one machine: how a table is paid, kept and found.
    const ELSEWHERE: [&str; 7] = [
        "DeletionProtectionEnabled",
        "OnDemandThroughput",
        "PointInTimeRecoverySpecification",
        "ProvisionedThroughput",
        "SSESpecification",
        "Tags",
        "WarmThroughput",
    ];

    /// The tables of a template as `tables.json` has them. What is no table is passed over, and so is what means nothing
    /// here; a field that is neither that nor known, or a table of another kind, is refused by its name: tables without it
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
        let created: Vec<String> = tables("t-").unwrap().into_iter().map(|table| table.name).collect();
        let Tables { likes, counts, checkpoints, recounts, .. } = Tables::with_prefix("t-");
        assert_eq!(created, [checkpoints, counts, likes, recounts]);
    }

    #[test]
    fn only_the_rows_have_a_stream_and_an_index_and_tombstones_and_recounts_expire() {
        for table in tables("").unwrap() {
            let is = |name: &str| table.name == name;
            assert_eq!(table.stream_specification.is_some(), is("likes"), "{}", table.name);
            assert_eq!(table.local_secondary_indexes.len(), usize::from(is("likes")), "{}", table.name);
            let expiry = table.time_to_live_specification.as_ref().map(|expiry| expiry.attribute_name.as_str());
            let expected = is("recounts").then_some("ttl").or(is("likes").then_some("gone"));
            assert_eq!(expiry, expected, "{}", table.name);
        }
    }
}
