//! Creates the four tables on an engine on one machine, as the CloudFormation template has them, from which production
//! creates its own. A test compares the two, and `tables.json`, from which `localstack/lib.py` creates tables.

use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, LocalSecondaryIndex, Projection, ProjectionType,
    ScalarAttributeType, StreamSpecification, StreamViewType, TableStatus, TimeToLiveSpecification,
};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::tables::{PIN, Shape, describe, find, shapes};

/// How often a new table is looked at until it is active, and how long between.
const LOOKS: u32 = 600;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

const SET: &str = "every field is set";

/// Creates the missing tables as the template has them, and waits until all can be used. Safe to repeat: a table that
/// is there stays as it is, except that its expiry is switched on. On AWS, CloudFormation is given the template.
pub async fn ensure_tables(connection: &Connection) -> Outcome<()> {
    let shapes = by_name(connection);
    for shape in &shapes {
        match creation(shape).send().await {
            Err(error) if error.code() == Some("ResourceInUseException") => {}
            created => created.map(|_| ()).map_err(|error| shape.table.fault(&error))?,
        }
    }
    for shape in &shapes {
        wait_until_active(connection, shape.table.name).await?;
        expire(connection, shape).await?;
    }
    Ok(())
}

/// Returns what [`ensure_tables`] would do, a line for each table that it would create or change.
///
/// # Errors
/// The store gives no answer.
pub async fn lacking_tables(connection: &Connection) -> Outcome<Vec<String>> {
    let mut lacking = Vec::new();
    for shape in by_name(connection) {
        let name = shape.table.name;
        let expiry = shape.expiry.map(|attribute| format!("expiry by `{attribute}`"));
        if find(connection, name).await?.is_none() {
            let stream = shape.is_streamed.then(|| "a stream of both images".to_owned());
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

/// Returns the names of the tables that are not there.
///
/// # Errors
/// The store gives no answer.
pub async fn missing_tables(connection: &Connection) -> Outcome<Vec<String>> {
    let mut missing = Vec::new();
    for shape in by_name(connection) {
        if find(connection, shape.table.name).await?.is_none() {
            missing.push(shape.table.name.to_owned());
        }
    }
    Ok(missing)
}

/// Returns the tables in the order of their names.
fn by_name(connection: &Connection) -> [Shape<'_>; 4] {
    let mut shapes = shapes(connection);
    shapes.sort_by_key(|shape| shape.table.name);
    shapes
}

fn creation(shape: &Shape<'_>) -> CreateTableFluentBuilder {
    let Shape { table, keys, is_streamed, .. } = *shape;
    let attribute = |name: &&str| {
        let text = AttributeDefinition::builder().attribute_name(*name).attribute_type(ScalarAttributeType::S);
        text.build().expect(SET)
    };
    let key = |(name, kind): (&&str, KeyType)| {
        KeySchemaElement::builder().attribute_name(*name).key_type(kind).build().expect(SET)
    };
    let schema = |keys: &[&str]| Some(keys.iter().zip([KeyType::Hash, KeyType::Range]).map(key).collect());
    let pin = is_streamed.then_some(PIN);
    let index = pin.map(|pin| {
        let projection = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
        let index = LocalSecondaryIndex::builder().index_name(pin).set_key_schema(schema(&[keys[0], pin]));
        index.projection(projection).build().expect(SET)
    });
    let stream = is_streamed.then(|| {
        let stream = StreamSpecification::builder().stream_enabled(true);
        stream.stream_view_type(StreamViewType::NewAndOldImages).build().expect(SET)
    });
    let create = table.connection.client.create_table().table_name(table.name);
    create
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(keys.iter().chain(&pin).map(attribute).collect()))
        .set_key_schema(schema(keys))
        .set_local_secondary_indexes(index.map(|index| vec![index]))
        .set_stream_specification(stream)
}

/// Lets the store delete expired items. Safe to repeat: it changes nothing where that is on.
async fn expire(connection: &Connection, shape: &Shape<'_>) -> Outcome<()> {
    let (name, Some(attribute)) = (shape.table.name, shape.expiry) else { return Ok(()) };
    if connection.expires(name).await?.is_some() {
        return Ok(());
    }
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build().expect(SET);
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
    use serde_json::{Value, json};
    use tally_core::time::UnixMillis;

    use super::*;
    use crate::dynamodb::connection::Settings;
    use crate::dynamodb::connection::told::Told;

    const TEMPLATE: &str = include_str!("../../../infra/data.yaml");
    const TABLES: &str = include_str!("tables.json");

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

    /// Returns the tables of the template with every other field, by their names.
    fn of_the_template() -> Vec<Value> {
        let template: Value = serde_saphyr::from_str(TEMPLATE).unwrap();
        let resources = template["Resources"].as_object().unwrap().values();
        let tables = resources.filter(|resource| resource["Type"].as_str().unwrap().starts_with("AWS::DynamoDB::"));
        let table = |resource: &Value| {
            assert_eq!(resource["Type"], "AWS::DynamoDB::Table");
            let mut table = resource["Properties"].clone();
            table.as_object_mut().unwrap().retain(|field, _| !ELSEWHERE.contains(&field.as_str()));
            // A reference to a parameter is read as the parameter's name.
            table["BillingMode"] = template["Parameters"][table["BillingMode"].as_str().unwrap()]["Default"].clone();
            table
        };
        let mut tables: Vec<Value> = tables.map(table).collect();
        tables.sort_by_key(|table| table["TableName"].to_string());
        tables
    }

    #[tokio::test(start_paused = true)]
    async fn the_tables_are_created_as_the_template_has_them() {
        let told = Told::new(&[(200, "{}"); 4]);
        let settings = Settings::local("${TablePrefix}");
        let connection = Connection::in_process(&settings, told.clone(), UnixMillis(0));
        let mut created = Vec::new();
        for (nth, shape) in by_name(&connection).iter().enumerate() {
            creation(shape).send().await.unwrap();
            let mut table = told.asked()[nth].clone();
            if let Some(stream) = table.get_mut("StreamSpecification").and_then(Value::as_object_mut) {
                assert_eq!(stream.remove("StreamEnabled"), Some(json!(true)));
            }
            if let Some(attribute) = shape.expiry {
                table["TimeToLiveSpecification"] = json!({"AttributeName": attribute, "Enabled": true});
            }
            created.push(table);
        }
        assert_eq!(created, of_the_template());
        let written: Value = serde_json::from_str(TABLES).unwrap();
        assert!(written == Value::Array(created), "write into tables.json:\n{:#}", Value::Array(of_the_template()));
    }
}
