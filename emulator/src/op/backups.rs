//! The operations of point-in-time recovery: UpdateContinuousBackups, DescribeContinuousBackups and
//! RestoreTableToPointInTime. A restore is instantaneous, to any time up to now.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::Deserialize;

use crate::clock::Millis;
use crate::engine::Engine;
use crate::engine::table::{Journal, Stored, Table};
use crate::error::{Error, Kind};
use crate::json::Writer;

use super::describe::{described, seconds};
use super::params::{TableRequest, check_table_name, required};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Specification {
    point_in_time_recovery_enabled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct UpdateContinuousBackups {
    #[serde(default)]
    table_name: String,
    point_in_time_recovery_specification: Option<Specification>,
}

/// Enables or disables point-in-time recovery at once. Disabling it discards the history.
pub(super) fn update(request: UpdateContinuousBackups, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    check_table_name(&request.table_name)?;
    let given = required("pointInTimeRecoverySpecification", request.point_in_time_recovery_specification)?;
    let now = engine.now;
    let table = found(engine.table_mut(&request.table_name), &request.table_name)?;
    match given.point_in_time_recovery_enabled {
        true => _ = table.journal.get_or_insert_with(|| Journal::new(now)),
        false => table.journal = None,
    }
    Ok(said(table, now))
}

/// Returns whether a table can be restored, and to which times.
pub(super) fn describe(request: TableRequest, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let name = request.checked_name()?;
    Ok(said(found(engine.table(&name), &name)?, engine.now))
}

fn found<T>(table: Result<T, Error>, name: &str) -> Result<T, Error> {
    table.map_err(|_| Error::new(Kind::TableNotFound, format!("Table not found: {name}")))
}

fn said(table: &Table, now: Millis) -> Vec<u8> {
    Writer::document(|out| {
        out.key("ContinuousBackupsDescription").object(|out| {
            out.key("ContinuousBackupsStatus").string("ENABLED");
            out.key("PointInTimeRecoveryDescription").object(|out| {
                let status = if table.journal.is_some() { "ENABLED" } else { "DISABLED" };
                out.key("PointInTimeRecoveryStatus").string(status);
                if let Some(journal) = &table.journal {
                    out.key("EarliestRestorableDateTime").serialize(&seconds(journal.since));
                    out.key("LatestRestorableDateTime").serialize(&seconds(now));
                }
            });
        });
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct RestoreTableToPointInTime {
    #[serde(default)]
    source_table_name: String,
    #[serde(default)]
    target_table_name: String,
    restore_date_time: Option<f64>,
    use_latest_restorable_time: Option<bool>,
}

/// Creates a table with the contents of another one at a point in time. As in DynamoDB, it has the keys, local indexes and
/// items, but no stream, expiry or recovery.
pub(super) fn restore(request: RestoreTableToPointInTime, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    check_table_name(&request.source_table_name)?;
    check_table_name(&request.target_table_name)?;
    let at = request.moment(engine.now)?;
    let source = found(engine.table(&request.source_table_name), &request.source_table_name)?;
    let Some(journal) = &source.journal else {
        let why = format!("Point in time recovery is not enabled for table '{}'", request.source_table_name);
        return Err(Error::new(Kind::PointInTimeRecoveryUnavailable, why));
    };
    if at < journal.since || at > engine.now {
        return Err(Error::new(Kind::InvalidRestoreTime, "Not a valid restore time."));
    }
    if engine.tables.contains_key(&request.target_table_name) {
        let why = format!("Table already exists: {}", request.target_table_name);
        return Err(Error::new(Kind::TableAlreadyExists, why));
    }
    let everything = (Bound::Unbounded, Bound::Unbounded);
    let now = source.rows.range(everything, true, None).map(|(key, image)| (key.clone(), image.clone()));
    let mut items: BTreeMap<_, _> = now.collect();
    journal.undo(&mut items, at);
    let (schema, provisioned, indexes) = (source.schema.clone(), source.provisioned, source.indexes.clone());
    let name = request.target_table_name;
    let mut table = Table::new(name.clone(), schema, provisioned, engine);
    table.indexes = indexes;
    engine.tables.insert(name.clone(), table);
    for (key, image) in items {
        engine.write(&name, &key, Some(&Stored { item: image.item(), image }))?;
    }
    Ok(described("TableDescription", engine.table(&name)?))
}

impl RestoreTableToPointInTime {
    fn moment(&self, now: Millis) -> Result<Millis, Error> {
        match (self.restore_date_time, self.use_latest_restorable_time.unwrap_or(false)) {
            (None, true) => Ok(now),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a time, and no number below 0"
            )]
            (Some(seconds), false) if seconds >= 0.0 => Ok((seconds * 1000.0).round() as Millis),
            _ => Err(Error::validation("Either RestoreDateTime or UseLatestRestorableTime has to be given")),
        }
    }
}
