//! Looks at the tables themselves for `tally`, the operators' command: which deployments there are, whether each table
//! has the right key, backups, protection and expiry, whether this process may write it, and how much the account may
//! write.

use aws_sdk_dynamodb::types::{DeleteRequest, PointInTimeRecoveryStatus, TimeToLiveStatus, WriteRequest};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::item::{Item, number, text};
use super::table::Table;
use super::tables::{Shape, check, describe, shapes};

/// How many pages of table names are read in search of deployments.
const PAGES: usize = 10;

/// The settings of one table, and whether it may be written. Where the engine does not answer, a field holds a fault.
#[derive(Clone, Debug)]
pub struct Examined {
    pub table: String,
    /// Whether it has the right key and, for `likes`, the stream and the index.
    pub form: Outcome<()>,
    /// Whether it can be restored to a point in time.
    pub recovery: Outcome<bool>,
    /// Whether it is protected from being deleted.
    pub protected: Outcome<bool>,
    /// The attribute by which items expire, if they do.
    pub expires: Outcome<Option<String>>,
    /// The attribute by which they have to expire.
    pub expiry: Option<&'static str>,
    /// Whether this process may write items.
    pub writable: Outcome<bool>,
}

/// How many write units the account may use: for all tables together, and for each table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    pub account: u64,
    pub table: u64,
}

impl Connection {
    /// Returns the table prefixes of this account's deployments in this Region, from the first pages of table names.
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

    /// Returns how many write units the account may use.
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

    /// Examines the four tables. Changes nothing.
    pub async fn examine(&self) -> Vec<Examined> {
        let mut examined = Vec::new();
        for shape in shapes(self) {
            let form = check(self, &shape).await;
            let Shape { table, keys, expiry, .. } = shape;
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

    /// Returns whether the store deletes tombstones whose time is over.
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

    /// Returns whether writing is allowed, by a write that changes nothing. Operators write only markers into `likes`,
    /// in batches, which take no condition: there it deletes a row that never exists. In other tables it updates an
    /// item under a condition that no item meets.
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
            update.await.map(|update| update.is_err())
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
