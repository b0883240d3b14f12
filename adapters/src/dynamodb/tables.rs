//! What the four tables have to be: created for a local stack and for tests, and checked by every process at its start.

use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, LocalSecondaryIndex, Projection, ProjectionType,
    ScalarAttributeType, StreamSpecification, StreamViewType, TableDescription, TableStatus, TimeToLiveSpecification,
    TimeToLiveStatus,
};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::names::likes::{PIN, USER_ID};
use super::names::recounts::TTL;
use super::names::{PK, SK, checkpoints, counts};

/// How often a table being created is looked at, and how long between.
const LOOKS: u32 = 600;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A table's name and its key: the partition key, and the sort key if it has one.
struct Shape<'a> {
    name: &'a str,
    keys: &'a [&'a str],
}

/// Creates the tables that are not there, and waits until all can be used. Safe to repeat: a table that is there stays
/// as it is. For a local stack and tests: in production the tables come from their own template.
pub async fn ensure_tables(connection: &Connection) -> Outcome<()> {
    for shape in shapes(connection) {
        let create = definition(connection, &shape)?;
        match create.send().await {
            Err(error) if error.code() == Some("ResourceInUseException") => {}
            created => created.map(|_| ()).map_err(|error| fault(shape.name, &error))?,
        }
    }
    for shape in shapes(connection) {
        wait_until_active(connection, shape.name).await?;
    }
    expire_reports(connection).await
}

/// Checks that the tables are what the design needs. What is wrong is fatal, and named: a table of another shape would
/// refuse every row, and a stream without both images would count nothing.
pub async fn check_tables(connection: &Connection) -> Outcome<()> {
    for shape in shapes(connection) {
        check_keys(&shape, &describe(connection, shape.name).await?)?;
    }
    check_likes(&connection.tables.likes, &describe(connection, &connection.tables.likes).await?)
}

fn shapes(connection: &Connection) -> [Shape<'_>; 4] {
    let tables = connection.tables();
    [
        Shape { name: &tables.likes, keys: &[PK, USER_ID] },
        Shape { name: &tables.counts, keys: &[counts::POST_ID] },
        Shape { name: &tables.checkpoints, keys: &[checkpoints::ID] },
        Shape { name: &tables.recounts, keys: &[PK, SK] },
    ]
}

fn definition(connection: &Connection, shape: &Shape<'_>) -> Outcome<CreateTableFluentBuilder> {
    let mut create = connection.client.create_table().table_name(shape.name).billing_mode(BillingMode::PayPerRequest);
    for element in key_schema(shape.keys) {
        create = create.key_schema(element);
    }
    for key in shape.keys {
        create = create.attribute_definitions(text_attribute(key));
    }
    if shape.name != connection.tables.likes {
        return Ok(create);
    }
    let keys_only = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let pin = LocalSecondaryIndex::builder()
        .index_name(PIN)
        .set_key_schema(Some(key_schema(&[PK, PIN])))
        .projection(keys_only)
        .build()
        .map_err(|error| Fault::Poison(error.to_string()))?;
    let stream = StreamSpecification::builder()
        .stream_enabled(true)
        .stream_view_type(StreamViewType::NewAndOldImages)
        .build()
        .map_err(|error| Fault::Poison(error.to_string()))?;
    Ok(create.attribute_definitions(text_attribute(PIN)).local_secondary_indexes(pin).stream_specification(stream))
}

fn key_schema(keys: &[&str]) -> Vec<KeySchemaElement> {
    let kinds = [KeyType::Hash, KeyType::Range];
    let element =
        |(key, kind): (&&str, KeyType)| KeySchemaElement::builder().attribute_name(*key).key_type(kind).build();
    keys.iter().zip(kinds).map(|key| element(key).expect("name and type are set")).collect()
}

fn text_attribute(name: &str) -> AttributeDefinition {
    let definition = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
    definition.build().expect("name and type are set")
}

async fn describe(connection: &Connection, table: &str) -> Outcome<TableDescription> {
    let described = connection.client.describe_table().table_name(table).send().await;
    let table_description = described.map_err(|error| fault(table, &error))?.table;
    table_description.ok_or_else(|| Fault::Transient(format!("table {table}: described without a description")))
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

/// Lets the store delete old reports. Safe to repeat: left alone where it is on.
async fn expire_reports(connection: &Connection) -> Outcome<()> {
    let table = connection.tables.recounts.as_str();
    let described = connection.client.describe_time_to_live().table_name(table).send().await;
    let described = described.map_err(|error| fault(table, &error))?.time_to_live_description;
    let status = described.as_ref().and_then(|ttl| ttl.time_to_live_status());
    if matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
        return Ok(());
    }
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(TTL).build();
    let ttl = ttl.expect("flag and attribute are set");
    let update = connection.client.update_time_to_live().table_name(table).time_to_live_specification(ttl);
    update.send().await.map(|_| ()).map_err(|error| fault(table, &error))
}

fn check_keys(shape: &Shape<'_>, table: &TableDescription) -> Outcome<()> {
    let found: Vec<&str> = table.key_schema().iter().map(KeySchemaElement::attribute_name).collect();
    let texts = |key: &&str| {
        let definition = table.attribute_definitions().iter().find(|definition| definition.attribute_name() == *key);
        definition.is_some_and(|definition| *definition.attribute_type() == ScalarAttributeType::S)
    };
    if found == shape.keys && shape.keys.iter().all(texts) {
        return Ok(());
    }
    let wanted = shape.keys.join(" and ");
    Err(Fault::Fatal(format!("table {}: its key has to be the text {wanted}, not {}", shape.name, found.join(" and "))))
}

/// The stream carries both images, and the local index keeps the rows of one key together.
fn check_likes(name: &str, table: &TableDescription) -> Outcome<()> {
    let stream = table.stream_specification().filter(|stream| stream.stream_enabled());
    let view = stream.and_then(StreamSpecification::stream_view_type);
    if view != Some(&StreamViewType::NewAndOldImages) {
        let found = view.map_or("none", StreamViewType::as_str);
        return Err(Fault::Fatal(format!("table {name}: its stream has to carry NEW_AND_OLD_IMAGES, not {found}")));
    }
    if table.local_secondary_indexes().is_empty() {
        return Err(Fault::Fatal(format!("table {name}: its local secondary index {PIN} is missing")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(keys: &[&str], view: Option<StreamViewType>) -> TableDescription {
        let stream = view
            .map(|view| StreamSpecification::builder().stream_enabled(true).stream_view_type(view).build().unwrap());
        TableDescription::builder()
            .set_key_schema(Some(key_schema(keys)))
            .set_attribute_definitions(Some(keys.iter().map(|key| text_attribute(key)).collect()))
            .set_stream_specification(stream)
            .build()
    }

    #[test]
    fn a_stream_without_both_images_is_fatal_and_named() {
        for (view, named) in [(None, "none"), (Some(StreamViewType::KeysOnly), "KEYS_ONLY")] {
            let Err(Fault::Fatal(message)) = check_likes("likes", &described(&[PK, USER_ID], view)) else { panic!() };
            assert!(message.contains("table likes") && message.ends_with(named), "{message}");
        }
        let complete = described(&[PK, USER_ID], Some(StreamViewType::NewAndOldImages));
        let Err(Fault::Fatal(message)) = check_likes("likes", &complete) else { panic!() };
        assert!(message.contains("pin"), "{message}");
    }

    #[test]
    fn a_table_with_another_key_is_fatal_and_named() {
        let shape = Shape { name: "recounts", keys: &[PK, SK] };
        assert_eq!(check_keys(&shape, &described(&[PK, SK], None)), Ok(()));
        for keys in [&[PK][..], &[SK, PK], &[PK, "other"]] {
            let fault = check_keys(&shape, &described(keys, None)).unwrap_err();
            assert!(matches!(&fault, Fault::Fatal(message) if message.contains("table recounts")), "{fault}");
        }
    }
}
