//! Checks that the four tables have the keys, the stream and the index that the design needs. Every process does so
//! when it starts, through `Deployment`. `template.rs` creates the tables.

use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::types::{
    KeySchemaElement, ScalarAttributeType, StreamSpecification, StreamViewType, TableDescription,
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
    if let Some(name) = table.table_arn() {
        // It may be set already, to the same name.
        let _ = connection.deployment.set(name.to_owned());
    }
    check_likes(name, &table)
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

/// Checks that the stream carries both images, and that the local index is there.
fn check_likes(name: &str, table: &TableDescription) -> Outcome<()> {
    if !table.local_secondary_indexes().iter().any(|index| index.index_name() == Some(PIN)) {
        return Err(Fault::Fatal(format!("table {name}: its local secondary index {PIN} is missing")));
    }
    let stream = table.stream_specification().filter(|stream| stream.stream_enabled());
    match stream.and_then(StreamSpecification::stream_view_type) {
        Some(StreamViewType::NewAndOldImages) => Ok(()),
        Some(other) => {
            Err(Fault::Fatal(format!("table {name}: its stream has to carry NEW_AND_OLD_IMAGES, not {other}")))
        }
        None => Err(Fault::Transient(format!("table {name} has no stream: it has to carry NEW_AND_OLD_IMAGES"))),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{AttributeDefinition, KeyType, LocalSecondaryIndexDescription};

    use super::*;

    fn key((name, kind): (&&str, KeyType)) -> KeySchemaElement {
        KeySchemaElement::builder().attribute_name(*name).key_type(kind).build().unwrap()
    }

    fn text(name: &&str) -> AttributeDefinition {
        let definition = AttributeDefinition::builder().attribute_name(*name);
        definition.attribute_type(ScalarAttributeType::S).build().unwrap()
    }

    fn described(keys: &[&str], view: Option<StreamViewType>) -> TableDescription {
        let stream = view
            .map(|view| StreamSpecification::builder().stream_enabled(true).stream_view_type(view).build().unwrap());
        TableDescription::builder()
            .set_key_schema(Some(keys.iter().zip([KeyType::Hash, KeyType::Range]).map(key).collect()))
            .set_attribute_definitions(Some(keys.iter().map(text).collect()))
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
}
