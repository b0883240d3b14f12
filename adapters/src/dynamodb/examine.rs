//! What an operator wants to know of the tables themselves: how they are kept, what they may take, and what may be done to them.

use aws_sdk_dynamodb::types::{DeleteRequest, PointInTimeRecoveryStatus, TimeToLiveStatus, WriteRequest};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::item::{Item, number, text};
use super::table::Table;
use super::tables::{Shape, check, describe, shapes};

/// Pages of table names that are read in search of deployments.
const PAGES: usize = 10;

/// How one table is kept, and whether it may be written. What the engine does not say is a fault of its own.
#[derive(Clone, Debug)]
pub struct Examined {
    pub table: String,
    /// Whether it is what the design needs: its key, and the stream and the index of rows.
    pub form: Outcome<()>,
    /// Whether it can be restored to a moment.
    pub recovery: Outcome<bool>,
    /// Whether it is protected from being deleted.
    pub protected: Outcome<bool>,
    /// The attribute that items expire by, if they do.
    pub expires: Outcome<Option<String>>,
    /// The one that they have to expire by.
    pub expiry: Option<&'static str>,
    /// Whether this process may update items.
    pub writable: Outcome<bool>,
}

/// Write units that the account may use, for all tables and for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    pub account: u64,
    pub table: u64,
}

impl Connection {
    /// What the names of this account's deployments begin with, in this region.
    ///
    /// # Errors
    /// The tables cannot be listed.
    pub async fn prefixes(&self) -> Outcome<Vec<String>> {
        let (mut prefixes, mut after) = (Vec::new(), None);
        for _ in 0..PAGES {
            let list = self.client.list_tables().set_exclusive_start_table_name(after);
            let reply = list.send().await.map_err(|error| fault("the list of tables", &error))?;
            let names = reply.table_names().iter().filter_map(|name| name.strip_suffix("like_counts"));
            prefixes.extend(names.map(str::to_owned));
            after = reply.last_evaluated_table_name;
            if after.is_none() {
                break;
            }
        }
        Ok(prefixes)
    }

    /// What the account may write a second.
    ///
    /// # Errors
    /// The engine does not say.
    pub async fn quotas(&self) -> Outcome<Quotas> {
        let reply =
            self.client.describe_limits().send().await.map_err(|error| fault("the account's limits", &error))?;
        let said = |units: Option<i64>| {
            let missing = || Fault::Transient("the account's limits: described without a number".to_owned());
            units.and_then(|units| u64::try_from(units).ok()).ok_or_else(missing)
        };
        Ok(Quotas {
            account: said(reply.account_max_write_capacity_units())?,
            table: said(reply.table_max_write_capacity_units())?,
        })
    }

    /// How each of the four tables is kept, and whether it may be written; nothing is changed.
    pub async fn examine(&self) -> Vec<Examined> {
        let mut examined = Vec::new();
        for shape in shapes(self) {
            let form = check(self, &shape).await;
            let Shape { table, keys, expiry } = shape;
            examined.push(Examined {
                table: table.name.to_owned(),
                form,
                recovery: self.recovers(table.name).await,
                protected: self.is_protected(table.name).await,
                expires: self.expires(table.name).await,
                expiry,
                writable: self.may_write(table, keys).await,
            });
        }
        examined
    }

    /// Whether the store deletes tombstones in their time.
    ///
    /// # Errors
    /// The engine does not say.
    pub async fn tombstones_expire(&self) -> Outcome<bool> {
        Ok(self.expires(&self.tables.likes).await?.as_deref() == Some("gone"))
    }

    async fn recovers(&self, table: &str) -> Outcome<bool> {
        let asked = self.client.describe_continuous_backups().table_name(table).send().await;
        let backups = asked.map_err(|error| fault(table, &error))?.continuous_backups_description;
        let status = backups.and_then(|backups| backups.point_in_time_recovery_description);
        let status = status.and_then(|recovery| recovery.point_in_time_recovery_status);
        Ok(status == Some(PointInTimeRecoveryStatus::Enabled))
    }

    async fn is_protected(&self, table: &str) -> Outcome<bool> {
        Ok(describe(self, table).await?.deletion_protection_enabled().unwrap_or(false))
    }

    pub(super) async fn expires(&self, table: &str) -> Outcome<Option<String>> {
        let asked = self.client.describe_time_to_live().table_name(table).send().await;
        let described = asked.map_err(|error| fault(table, &error))?.time_to_live_description;
        let is_on =
            |status: &TimeToLiveStatus| matches!(status, TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling);
        let on = described.filter(|described| described.time_to_live_status().is_some_and(is_on));
        Ok(on.map(|described| described.attribute_name.unwrap_or_default()))
    }

    /// Whether writing is allowed, by a write that changes nothing. Of rows an operator puts markers alone, in batches, which take
    /// no condition: there it deletes a row that is never there. Elsewhere it updates under a condition that no item meets.
    async fn may_write(&self, table: Table<'_>, keys: &[&str]) -> Outcome<bool> {
        let part = |name: &&str| ((*name).to_owned(), text("\u{1}nothing is ever here"));
        let key: Item = keys.iter().map(part).collect();
        let may = if *table.name == self.tables.likes {
            let delete = DeleteRequest::builder().set_key(Some(key)).build().expect("the key is set");
            let write = WriteRequest::builder().delete_request(delete).build();
            let sent = self.client.batch_write_item().request_items(table.name, vec![write]).send().await;
            sent.map(|_| true).map_err(|error| table.fault(&error))
        } else {
            let never = format!("attribute_exists(#{0}) AND attribute_not_exists(#{0})", keys[0]);
            let update = table.update_if(key, "SET #at=:one", &never, [(":one", number(1))]);
            update.await.map(|update| !update.is_done())
        };
        match may {
            Ok(true) => Ok(true),
            Ok(false) => {
                Err(Fault::Fatal(format!("table {}: a write was taken although its condition cannot hold", table.name)))
            }
            Err(Fault::Fatal(said)) if said.contains("AccessDenied") => Ok(false),
            Err(fault) => Err(fault),
        }
    }
}
