//! The operations that create, change and delete tables: CreateTable, UpdateTable and DeleteTable. Unlike in DynamoDB,
//! a table is ready at once.

mod definitions;

use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::stream::Stream;
use crate::engine::table::{Provisioned, Table};
use crate::error::{Error, Kind};

use self::definitions::{AttributeDefinition, Definitions, KeyElement, LocalIndexRequest};
use super::describe::{described, described_deleted, no_table};
use super::params::{TableRequest, check_table_name, constraint, one_of};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StreamSpecification {
    stream_enabled: bool,
    stream_view_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Throughput {
    read_capacity_units: i64,
    write_capacity_units: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct CreateTable {
    #[serde(default)]
    table_name: String,
    #[serde(default)]
    attribute_definitions: Vec<AttributeDefinition>,
    #[serde(default)]
    key_schema: Vec<KeyElement>,
    #[serde(default)]
    local_secondary_indexes: Vec<LocalIndexRequest>,
    billing_mode: Option<String>,
    provisioned_throughput: Option<Throughput>,
    stream_specification: Option<StreamSpecification>,
    deletion_protection_enabled: Option<bool>,
}

/// Creates a table.
pub(super) fn create(request: CreateTable, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    check_table_name(&request.table_name)?;
    let definitions = Definitions::new(request.attribute_definitions)?;
    let schema = definitions.schema(&request.key_schema)?;
    let indexes = definitions.indexes(request.local_secondary_indexes, &schema)?;
    definitions.refuse_unused(&schema, &indexes)?;
    let provisioned = provisioned(request.billing_mode.as_deref(), request.provisioned_throughput)?;
    let view = request.stream_specification.map(StreamSpecification::view).transpose()?.flatten();
    if engine.tables.contains_key(&request.table_name) {
        return Err(Error::new(Kind::ResourceInUse, format!("Table already exists: {}", request.table_name)));
    }
    let mut table = Table::new(request.table_name, schema, provisioned, engine);
    table.protected = request.deletion_protection_enabled.unwrap_or(false);
    table.indexes = indexes;
    if let Some(view) = view {
        let label = engine.next_label();
        table.stream = Some(Stream::new(&table, view, label, &engine.config));
    }
    let answer = described("TableDescription", &table);
    engine.tables.insert(table.name.clone(), table);
    Ok(answer)
}

impl StreamSpecification {
    /// The images that the stream should contain; `None` means no stream.
    fn view(self) -> Result<Option<&'static str>, Error> {
        let views = ["NEW_AND_OLD_IMAGES", "KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE"].map(|word| (word, word));
        match (self.stream_enabled, self.stream_view_type) {
            (true, Some(text)) => one_of("streamSpecification.streamViewType", Some(&text), &views).map(Some),
            (true, None) => Err(Error::parameters("StreamViewType is required when StreamEnabled is true")),
            (false, Some(_)) => {
                Err(Error::parameters("StreamViewType cannot be specified when StreamEnabled is false"))
            }
            (false, None) => Ok(None),
        }
    }
}

fn provisioned(mode: Option<&str>, throughput: Option<Throughput>) -> Result<Provisioned, Error> {
    let on_demand = one_of("billingMode", mode, &[("PROVISIONED", false), ("PAY_PER_REQUEST", true)])?;
    match (on_demand, throughput) {
        (true, None) => Ok(None),
        (true, Some(_)) => Err(Error::parameters(
            "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified \
             when BillingMode is PAY_PER_REQUEST",
        )),
        (false, None) => Err(Error::validation("No provisioned throughput specified for the table")),
        (false, Some(given)) => {
            let units = |units: i64| {
                let rule = "Member must have value greater than or equal to 1";
                let refused = || constraint("provisionedThroughput", &units.to_string(), rule);
                u64::try_from(units).ok().filter(|units| *units > 0).ok_or_else(refused)
            };
            Ok(Some((units(given.read_capacity_units)?, units(given.write_capacity_units)?)))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct UpdateTable {
    #[serde(default)]
    table_name: String,
    billing_mode: Option<String>,
    provisioned_throughput: Option<Throughput>,
    stream_specification: Option<StreamSpecification>,
    deletion_protection_enabled: Option<bool>,
}

/// Changes the billing mode or the deletion protection of a table, or enables or disables its stream.
pub(super) fn update(request: UpdateTable, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    check_table_name(&request.table_name)?;
    let table = engine.table(&request.table_name)?;
    let billing = match (request.billing_mode.as_deref(), request.provisioned_throughput) {
        (None, None) => None,
        (mode, throughput) => Some(provisioned(mode, throughput)?),
    };
    if billing.is_none() && request.stream_specification.is_none() && request.deletion_protection_enabled.is_none() {
        return Err(Error::validation(
            "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates \
             or SSESpecification or ReplicaUpdates is required",
        ));
    }
    let streams = table.stream.is_some();
    if let Some(specification) = request.stream_specification {
        let refused = |why: &str| Err(Error::validation(format!("{why}: TableName: {}", request.table_name)));
        match specification.view()? {
            Some(_) if streams => return refused("Table already has an enabled stream"),
            None if !streams => return refused("Table has no stream to disable"),
            None => engine.retire_stream(&request.table_name),
            Some(view) => {
                let label = engine.next_label();
                let stream = Stream::new(engine.table(&request.table_name)?, view, label, &engine.config);
                engine.table_mut(&request.table_name)?.stream = Some(stream);
            }
        }
    }
    let table = engine.table_mut(&request.table_name)?;
    if let Some(billing) = billing {
        table.provisioned = billing;
    }
    table.protected = request.deletion_protection_enabled.unwrap_or(table.protected);
    Ok(described("TableDescription", table))
}

/// Deletes a table with all its items.
pub(super) fn delete(request: TableRequest, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let name = request.checked_name()?;
    if engine.tables.get(&name).is_some_and(|table| table.protected) {
        return Err(Error::validation(format!(
            "Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first. \
             Table: {name}"
        )));
    }
    let table = engine.remove_table(&name).ok_or_else(|| no_table(&name))?;
    Ok(described_deleted(&table))
}
