//! Which tables a deployment was created over, and whether they still are there. A table that was deleted and created
//! anew has the same name and another id, and what other tables say of its content is wrong.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::{AttributeValue, TableDescription, TableStatus};
use futures_util::future::try_join_all;
use tally_core::ports::Outcome;

use super::connection::{CHECKPOINTS, Connection, NAMES, Tables};
use super::item::{Item, text};
use super::tables::find;

/// The ids of tables, each under the table's name without the prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableIds(pub BTreeMap<String, String>);

/// The tables that the configuration names, beside those that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTables {
    /// The prefix of each table's name.
    pub prefix: String,
    /// The tables that the configuration names; `None` where there is no configuration.
    pub stored: Option<TableIds>,
    pub present: TableIds,
    /// Whether `like_counts` was emptied: its reserved row is not there.
    pub is_emptied: bool,
}

/// What is wrong with one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    table: &'static str,
    /// What is lost by it, in words for people.
    pub(super) lost: String,
    remedy: &'static str,
}

pub(super) const EMPTIED: &str = "like_counts was emptied: its reserved row is not there";
const CONFIGURATION_GONE: &str = "the checkpoints table has no `config`: it was emptied, or is another one. Restore it, or run `tally adopt tables --shards N`";

impl TableIds {
    /// Finds the ids of the tables that are there.
    pub(super) async fn present(connection: &Connection) -> Outcome<Self> {
        let Tables { likes, counts, checkpoints, recounts, .. } = connection.tables();
        let found = try_join_all([likes, counts, checkpoints, recounts].map(|table| find(connection, table))).await?;
        let ids = NAMES.into_iter().zip(found).filter_map(|(name, table)| Some((name.to_owned(), id(&table?)?)));
        Ok(Self(ids.collect()))
    }

    /// Decodes the tables that a configuration names. An id that cannot be read is left out, so that its table counts
    /// as another one.
    pub(super) fn decode(config: &Item) -> Self {
        let stored = config.get("tables").and_then(|tables| tables.as_m().ok()).into_iter().flatten();
        Self(stored.filter_map(|(name, id)| Some((name.clone(), id.as_s().ok()?.clone()))).collect())
    }

    pub(super) fn encode(&self) -> AttributeValue {
        AttributeValue::M(self.0.iter().map(|(name, id)| (name.clone(), text(id))).collect::<Item>())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the tables that are not there.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        NAMES.into_iter().filter(|name| !self.has(name)).collect()
    }
}

/// Returns what tells a table from any other of its name: its id or, where the engine gives no ids, when it was
/// created. `None` for a table that is being deleted.
fn id(table: &TableDescription) -> Option<String> {
    if table.table_status() == Some(&TableStatus::Deleting) {
        return None;
    }
    let created = || table.creation_date_time().map(|at| format!("created {}", at.as_secs_f64()));
    table.table_id().map(str::to_owned).or_else(created)
}

impl SeenTables {
    /// Returns whether the tables are those that the deployment was created over.
    pub fn is_whole(&self) -> bool {
        self.problem().is_none()
    }

    /// Returns what is wrong with the tables, and what to do about it.
    pub fn problem(&self) -> Option<String> {
        let said = |problem: Problem| format!("{}: {}", problem.lost, problem.remedy);
        let mut problems: Vec<String> = self.problems().into_iter().map(said).collect();
        if self.is_emptied {
            problems.push(format!("{EMPTIED}: run `tally adopt tables` to count anew"));
        }
        if self.stored.is_none() && self.present.has(CHECKPOINTS) {
            problems.push(CONFIGURATION_GONE.to_owned());
        }
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Returns the tables that nothing may be written to.
    pub(super) fn closed(&self) -> BTreeSet<&'static str> {
        let mut closed: BTreeSet<_> = self.problems().into_iter().map(|problem| problem.table).collect();
        if self.stored.is_none() {
            closed.insert(CHECKPOINTS);
        }
        closed
    }

    /// Returns the tables that are gone or others.
    pub(super) fn problems(&self) -> Vec<Problem> {
        NAMES.into_iter().filter_map(|name| self.problem_of(name)).collect()
    }

    /// Returns whether a table is the one that the configuration names.
    pub(super) fn is_same(&self, name: &str) -> bool {
        let stored = self.stored.as_ref().and_then(|stored| stored.0.get(name));
        stored.is_some() && stored == self.present.0.get(name)
    }

    fn problem_of(&self, name: &'static str) -> Option<Problem> {
        let table = format!("table {}{name}", self.prefix);
        let stored = self.stored.as_ref().map(|stored| stored.0.get(name));
        match (stored, self.present.0.get(name)) {
            (None, Some(_)) => None,
            (Some(stored), Some(present)) if stored == Some(present) => None,
            (Some(stored), Some(present)) => {
                let stored = stored.map_or("none", String::as_str);
                let lost = format!("{table} is another one than before: its id is {present}, not {stored}");
                Some(Problem { table: name, lost, remedy: "run `tally adopt tables` to go on with it" })
            }
            (stored, None) => {
                let id = stored.flatten().map(|id| format!(", its id was {id}")).unwrap_or_default();
                let remedy = "restore it, or create it anew and run `tally adopt tables`";
                Some(Problem { table: name, lost: format!("{table} is gone{id}"), remedy })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(of: &[(&str, &str)]) -> TableIds {
        TableIds(of.iter().map(|(name, id)| ((*name).to_owned(), (*id).to_owned())).collect())
    }

    #[test]
    fn a_table_that_is_gone_or_another_one_is_named_with_what_to_do() {
        let all = ids(&NAMES.map(|name| (name, "1")));
        let seen =
            SeenTables { prefix: "t-".to_owned(), stored: Some(all.clone()), present: all.clone(), is_emptied: false };
        assert_eq!(seen.problem(), None);
        let with = |present: TableIds| SeenTables { present, ..seen.clone() }.problem().unwrap_or_default();
        let mut present = all.clone();
        present.0.insert("like_counts".to_owned(), "2".to_owned());
        let another = "table t-like_counts is another one than before: its id is 2, not 1: run `tally adopt tables` to go on with it";
        assert_eq!(with(present.clone()), another);
        present.0.remove("likes");
        let gone = "table t-likes is gone, its id was 1: restore it, or create it anew and run `tally adopt tables`";
        assert_eq!(with(present), format!("{gone}; {another}"));
        let lost = SeenTables { stored: None, ..seen.clone() };
        assert_eq!(lost.problem().as_deref(), Some(CONFIGURATION_GONE));
        let unknown = SeenTables { stored: Some(TableIds::default()), ..seen.clone() };
        assert_eq!(unknown.problems().len(), NAMES.len());
        let emptied = SeenTables { is_emptied: true, ..seen };
        assert!(emptied.problem().is_some_and(|problem| problem.contains("was emptied")));
    }

    #[test]
    fn a_table_is_told_by_its_id_and_otherwise_by_when_it_was_created() {
        let table = TableDescription::builder().creation_date_time(aws_smithy_types::DateTime::from_secs_f64(5.25));
        assert_eq!(id(&table.clone().build()).as_deref(), Some("created 5.25"));
        assert_eq!(id(&table.clone().table_id("x").build()).as_deref(), Some("x"));
        assert_eq!(id(&table.table_id("x").table_status(TableStatus::Deleting).build()), None);
    }
}
