//! The shape of the four tables: their keys, and the stream and the index that the design needs. Every process checks
//! them when it starts, through `Deployment`. On an engine on one machine they are created as the CloudFormation template
//! has them, from which production creates its own. A test compares the two, and `tables.json`, from which
//! `localstack/lib.py` creates tables.

use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, LocalSecondaryIndex, Projection, ProjectionType,
    ScalarAttributeType, StreamSpecification, StreamViewType, TableDescription, TableStatus, TimeToLiveSpecification,
};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::table::Table;

/// A table as the design needs it.
pub(super) struct Shape<'a> {
    pub(super) table: Table<'a>,
    /// The partition key, and the sort key if it has one.
    pub(super) keys: &'a [&'a str],
    /// The attribute by which items expire, if they do.
    pub(super) expiry: Option<&'static str>,
    /// Whether it has a stream of both images, and the index [`PIN`].
    pub(super) is_streamed: bool,
}

/// The local index over an attribute that no row has. It keeps the rows of one key together.
pub(super) const PIN: &str = "pin";

/// Checks the four tables, and names what is wrong. A table that is missing or has no stream may be about to get it:
/// that is transient. Another key would refuse every row, and a stream without both images would count nothing: these
/// are fatal, and so is a missing index.
pub async fn check_tables(connection: &Connection) -> Outcome<()> {
    for shape in shapes(connection) {
        check(connection, &shape).await?;
    }
    Ok(())
}

/// Checks one table.
pub(super) async fn check(connection: &Connection, shape: &Shape<'_>) -> Outcome<()> {
    let name = shape.table.name;
    let table = describe(connection, name).await?;
    check_keys(name, shape.keys, &table)?;
    if !shape.is_streamed {
        return Ok(());
    }
    name_deployment(connection, &table);
    check_likes(name, &table)
}

/// Remembers the deployment's name, which is that of its table `likes`.
fn name_deployment(connection: &Connection, likes: &TableDescription) {
    if let Some(name) = likes.table_arn() {
        // It may be set already, to the same name.
        let _ = connection.deployment.set(name.to_owned());
    }
}

/// Returns whether the likes table holds an item; reads consistently.
pub(crate) async fn holds_items(connection: &Connection) -> Outcome<bool> {
    let reply = connection.likes().scan(None).limit(1).send().await;
    let reply = reply.map_err(|error| connection.likes().fault(&error))?;
    Ok(!reply.items().is_empty())
}

/// Returns whether the likes table held an item when the store last counted, which it does every few hours. For a
/// process that may not read rows.
pub(crate) async fn held_items(connection: &Connection) -> Outcome<bool> {
    Ok(describe(connection, &connection.tables.likes).await?.item_count().is_some_and(|items| items > 0))
}

/// Returns the four tables of a deployment.
pub(super) fn shapes(connection: &Connection) -> [Shape<'_>; 4] {
    let plain = |table, keys, expiry| Shape { table, keys, expiry, is_streamed: false };
    [
        Shape { is_streamed: true, ..plain(connection.likes(), &["pk", "user_id"], Some("gone")) },
        plain(connection.counts(), &["post_id"], None),
        plain(connection.checkpoints(), &["id"], None),
        plain(connection.recounts(), &["pk", "sk"], Some("ttl")),
    ]
}

/// Describes a table that has to be there. A missing one is transient, since it may be about to be created.
pub(super) async fn describe(connection: &Connection, table: &str) -> Outcome<TableDescription> {
    let missing = || Fault::Transient(format!("{table}: ResourceNotFoundException: there is no such table"));
    find(connection, table).await?.ok_or_else(missing)
}

/// Describes a table, if it is there.
pub(super) async fn find(connection: &Connection, table: &str) -> Outcome<Option<TableDescription>> {
    match connection.client.describe_table().table_name(table).send().await {
        Ok(described) => {
            let none = || Fault::Transient(format!("table {table}: described without a description"));
            described.table.ok_or_else(none).map(Some)
        }
        Err(error) if error.code() == Some("ResourceNotFoundException") => Ok(None),
        Err(error) => Err(fault(table, &error)),
    }
}

fn check_keys(name: &str, keys: &[&str], table: &TableDescription) -> Outcome<()> {
    let found: Vec<&str> = table.key_schema().iter().map(KeySchemaElement::attribute_name).collect();
    let texts = |key: &&str| {
        let definition = table.attribute_definitions().iter().find(|definition| definition.attribute_name() == *key);
        definition.is_some_and(|definition| *definition.attribute_type() == ScalarAttributeType::S)
    };
    if found == keys && keys.iter().all(texts) {
        return Ok(());
    }
    let wanted = keys.join(" and ");
    Err(Fault::Fatal(format!("table {}: its key has to be the text {wanted}, not {}", name, found.join(" and "))))
}

/// Returns what the table's stream carries; `None` where it has none.
pub(super) fn stream_view(table: &TableDescription) -> Option<&StreamViewType> {
    table.stream_specification().filter(|stream| stream.stream_enabled())?.stream_view_type()
}

/// Checks that the stream carries both images, and that the local index is there.
fn check_likes(name: &str, table: &TableDescription) -> Outcome<()> {
    if !table.local_secondary_indexes().iter().any(|index| index.index_name() == Some(PIN)) {
        return Err(Fault::Fatal(format!("table {name}: its local secondary index {PIN} is missing")));
    }
    match stream_view(table) {
        Some(StreamViewType::NewAndOldImages) => Ok(()),
        Some(other) => {
            Err(Fault::Fatal(format!("table {name}: its stream has to carry NEW_AND_OLD_IMAGES, not {other}")))
        }
        None => Err(Fault::Transient(format!("table {name} has no stream: it has to carry NEW_AND_OLD_IMAGES"))),
    }
}

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
        match find(connection, shape.table.name).await? {
            None => missing.push(shape.table.name.to_owned()),
            Some(likes) if shape.is_streamed => name_deployment(connection, &likes),
            Some(_) => {}
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

/// Returns the definition of a text attribute.
fn attribute(name: &&str) -> AttributeDefinition {
    let text = AttributeDefinition::builder().attribute_name(*name).attribute_type(ScalarAttributeType::S);
    text.build().expect(SET)
}

/// Returns a key of these attributes, the partition key first.
fn schema(keys: &[&str]) -> Vec<KeySchemaElement> {
    let key = |(name, kind): (&&str, KeyType)| {
        KeySchemaElement::builder().attribute_name(*name).key_type(kind).build().expect(SET)
    };
    keys.iter().zip([KeyType::Hash, KeyType::Range]).map(key).collect()
}

fn creation(shape: &Shape<'_>) -> CreateTableFluentBuilder {
    let Shape { table, keys, is_streamed, .. } = *shape;
    let pin = is_streamed.then_some(PIN);
    let index = pin.map(|pin| {
        let projection = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
        let index = LocalSecondaryIndex::builder().index_name(pin).set_key_schema(Some(schema(&[keys[0], pin])));
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
        .set_key_schema(Some(schema(keys)))
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
    use aws_sdk_dynamodb::types::LocalSecondaryIndexDescription;
    use serde_json::{Value, json};
    use tally_core::time::UnixMillis;

    use super::*;
    use crate::dynamodb::connection::Settings;
    use crate::dynamodb::connection::told::Told;

    fn described(keys: &[&str], view: Option<StreamViewType>) -> TableDescription {
        let stream = view
            .map(|view| StreamSpecification::builder().stream_enabled(true).stream_view_type(view).build().unwrap());
        TableDescription::builder()
            .set_key_schema(Some(schema(keys)))
            .set_attribute_definitions(Some(keys.iter().map(attribute).collect()))
            .set_stream_specification(stream)
            .build()
    }

    fn with_index(name: &str, table: &TableDescription) -> TableDescription {
        let index = LocalSecondaryIndexDescription::builder().index_name(name).build();
        let mut table = table.clone();
        table.local_secondary_indexes = Some(vec![index]);
        table
    }

    #[test]
    fn a_stream_of_other_images_and_a_missing_index_are_fatal_and_a_stream_that_may_still_come_is_not() {
        let of = |view| described(&["pk", "user_id"], view);
        let both = of(Some(StreamViewType::NewAndOldImages));
        assert_eq!(check_likes("likes", &with_index("pin", &both)), Ok(()));
        let keys = check_likes("likes", &with_index("pin", &of(Some(StreamViewType::KeysOnly)))).unwrap_err();
        assert!(matches!(&keys, Fault::Fatal(said) if said.ends_with("not KEYS_ONLY")), "{keys}");
        let none = check_likes("likes", &with_index("pin", &of(None))).unwrap_err();
        assert!(matches!(&none, Fault::Transient(said) if said.contains("table likes has no stream")), "{none}");
        for table in [both.clone(), with_index("other", &both), of(None)] {
            let fault = check_likes("likes", &table).unwrap_err();
            assert!(matches!(&fault, Fault::Fatal(said) if said.contains("index pin")), "{fault}");
        }
    }

    #[test]
    fn a_table_with_another_key_is_fatal_and_named() {
        let key = ["pk", "sk"];
        assert_eq!(check_keys("recounts", &key, &described(&key, None)), Ok(()));
        for keys in [&["pk"][..], &["sk", "pk"], &["pk", "other"]] {
            let fault = check_keys("recounts", &key, &described(keys, None)).unwrap_err();
            assert!(matches!(&fault, Fault::Fatal(message) if message.contains("table recounts")), "{fault}");
        }
    }

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
