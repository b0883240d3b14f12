//! The configuration of a deployment, which is the item `config` of the table `checkpoints`: its number of shards, its
//! counters and milestones, the ids of its tables, and the format of what is stored. Every process reads it when it
//! starts. The first one that writes rows or counts creates it, or an operator who brings one that was kept; operators
//! change it later. Tables that were replaced are adopted here, which opens losses. (The other items of the table have
//! modules of their own.)

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::definitions::{Definitions, Entry};
use tally_core::fault::Fault;
use tally_core::format::Format;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_core::ports::Outcome;
use tally_core::time::{Bounds, UnixMillis};

use super::changes::Changes;
use super::connection::{CHECKPOINTS, COUNTS, Connection};
use super::counters::Counters;
use super::item::{Attribute, Item, Reader, item, number, text};
use super::regions::NamedRegions;
use super::table::{Consistency, Table, Values};
use super::table_ids::{EMPTIED, SeenTables, TableIds};
use super::usual::Usual;
use super::watch::{LOSS, open_loss};

pub(super) const CONFIG: &str = "config";

/// Reads and writes the configuration of a deployment.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    pub(super) connection: Connection,
}

/// The key of an item of the table `checkpoints`.
pub(super) fn key(id: &str) -> Item {
    item! { "id": text(id) }
}

fn encode_definitions(definitions: &Definitions) -> AttributeValue {
    let entry = |entry: Entry| {
        AttributeValue::M(item! {
            "name": text(entry.name),
            "kind": text(entry.kind),
            "add": text(entry.add),
            "remove": entry.remove.map(text),
            "subject": entry.subject.map(text),
            "member": entry.member.map(text),
            "topic": entry.topic.map(text),
        })
    };
    AttributeValue::L(definitions.iter().map(|definition| entry(Entry::from(definition))).collect())
}

/// Returns the definitions as they are stored: not at all where there are likes alone.
pub(super) fn stored_definitions(definitions: &Definitions) -> Option<AttributeValue> {
    (*definitions != Definitions::likes_alone()).then(|| encode_definitions(definitions))
}

/// Decodes the counters' definitions. Where none are stored, there are likes alone.
pub(super) fn decode_definitions(reader: &Reader<'_>) -> Outcome<Definitions> {
    let Some(entries) = reader.get::<Option<Vec<Entry>>>("counters")? else { return Ok(Definitions::likes_alone()) };
    Definitions::new(&entries).map_err(|error| reader.malformed("counters", error))
}

impl Attribute for Entry {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        let mut fields = BTreeMap::<String, String>::read(value)?;
        let mut required = |name: &str| fields.remove(name).ok_or_else(|| format!("{name} is missing"));
        let (name, kind, add) = (required("name")?, required("kind")?, required("add")?);
        let mut field = |name: &str| fields.remove(name);
        let (remove, subject) = (field("remove"), field("subject"));
        Ok(Self { name, kind, add, remove, subject, member: field("member"), topic: field("topic") })
    }
}

/// A configuration that an operator has kept, to be stored again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub shards: ShardCount,
    pub definitions: Definitions,
    pub ladder: Ladder,
    /// The topic of the counters whose definition names none.
    pub topic: String,
}

/// What one look at the configuration and at the tables shows.
pub(super) struct Look {
    pub(super) format: Option<Format>,
    pub(super) shards: Option<ShardCount>,
    pub(super) tables: SeenTables,
    /// When an operator last adopted other tables.
    pub(super) adopted: Option<String>,
}

impl Look {
    /// Returns whether everything is as this build left it, with this many shards.
    pub(super) fn is_as(&self, shards: ShardCount) -> bool {
        self.format == Some(Format::written()) && self.shards == Some(shards) && self.tables.is_whole()
    }
}

impl Checkpoints {
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    pub(super) fn table(&self) -> Table<'_> {
        self.connection.checkpoints()
    }

    fn shard_count(&self, config: &Item) -> Outcome<ShardCount> {
        self.table().reader(config).get("shards")
    }

    pub(super) async fn stored(&self) -> Outcome<Option<Item>> {
        self.table().get(key(CONFIG), Consistency::Strong).await
    }

    /// Looks at the tables, and at what the configuration says of them. Leaves out what this build cannot read of the
    /// configuration, which may be in another format.
    pub(super) async fn look(&self, consistency: Consistency) -> Outcome<Look> {
        let present = TableIds::present(&self.connection).await?;
        let config = if present.has(CHECKPOINTS) { self.table().get(key(CONFIG), consistency).await? } else { None };
        let tables = SeenTables {
            prefix: self.connection.tables.prefix.clone(),
            stored: config.as_ref().map(TableIds::decode),
            present,
            is_emptied: false,
        };
        let shards = config.as_ref().and_then(|config| self.shard_count(config).ok());
        let adopted = config.as_ref().and_then(|config| config.get("adopted")?.as_n().ok().cloned());
        Ok(Look { format: config.as_ref().map(format_of), shards, tables, adopted })
    }

    /// Returns which tables the configuration names and which there are, for those who may have to
    /// [adopt](Self::adopt_tables) them.
    ///
    /// # Errors
    /// A table cannot be looked at.
    pub async fn seen_tables(&self) -> Outcome<SeenTables> {
        let tables = self.look(Consistency::Strong).await?.tables;
        let is_emptied =
            tables.is_same(COUNTS) && !Counters::new(&self.connection).has_reserved(Consistency::Strong).await?;
        Ok(SeenTables { is_emptied, ..tables })
    }

    /// Goes on with the tables that are there, by naming them in the configuration. Returns `false` if something is not
    /// as `seen` any more. Opens a loss before that for each table that is another one, since what other items say of
    /// its content is wrong. Safe to repeat: a repetition finds other tables named than in `seen`, and does nothing.
    ///
    /// # Errors
    /// A table is missing, there is no configuration ([`put_config`](Self::put_config) writes one), or the store takes
    /// no write.
    pub async fn adopt_tables(&self, seen: &SeenTables, now: UnixMillis) -> Outcome<bool> {
        let Some(stored) = &seen.stored else {
            return Err(Fault::Fatal(format!("{}: there is no `config` to name the tables in", self.table().name)));
        };
        let missing = seen.present.missing().join(" and ");
        if !missing.is_empty() {
            return Err(Fault::Fatal(format!("{missing}: there is no such table to go on with")));
        }
        if self.seen_tables().await? != *seen {
            return Ok(false);
        }
        let changes = Changes::new(&self.connection);
        for problem in seen.problems() {
            open_loss(&changes, now, &problem.lost).await?;
        }
        if seen.is_emptied {
            // The table may have been emptied before, with a loss of the same text.
            changes.open_new_loss(now, LOSS, EMPTIED).await?;
        }
        let now = self.connection.store_clock().now(now).plus(Bounds::BELIEVED);
        Counters::new(&self.connection).put_reserved_since(now).await?;
        let mut values = Values::from([(":tables", seen.present.encode()), (":now", number(now))]);
        let stands = values.same("tables", (!stored.0.is_empty()).then(|| stored.encode()));
        let condition = format!("attribute_exists(#id) AND {stands}");
        let update = "SET #tables=:tables,#adopted=:now";
        let adopted = self.table().update_if(key(CONFIG), update, &condition, values).await?;
        // An earlier copy may have been carried out.
        let (Ok(config) | Err(Some(config))) = adopted else { return Ok(false) };
        Ok(TableIds::decode(&config) == seen.present)
    }

    /// Stores the configuration if there is none, over the tables that are there. Returns whether it did. Opens a loss
    /// before that, since it is unknown what the tables hold. Safe to repeat: a stored configuration stays, and one
    /// more loss does no harm.
    ///
    /// # Errors
    /// A table is missing, or the store takes no write.
    pub async fn put_config(&self, of: &Configuration, now: UnixMillis) -> Outcome<bool> {
        if self.stored().await?.is_some() {
            return Ok(false);
        }
        Changes::new(&self.connection).open_new_loss(now, LOSS, "the configuration was lost").await?;
        let config = item! {
            "shards": number(of.shards),
            "adopted": number(now),
            "topic": text(&*of.topic),
            "counters": stored_definitions(&of.definitions),
            "milestones": (!of.ladder.is_empty()).then(|| text(of.ladder.to_string())),
        };
        self.put_new_config(config).await
    }

    /// Stores the configuration of a deployment that has none. Returns whether it did. Safe to repeat: a stored one
    /// stays.
    async fn put_new_config(&self, mut config: Item) -> Outcome<bool> {
        let tables = TableIds::present(&self.connection).await?;
        let missing = tables.missing().join(" and ");
        if !missing.is_empty() {
            return Err(Fault::Transient(format!("{missing}: there is no such table")));
        }
        // Without the reserved row no process takes an absent counter for 0.
        Counters::new(&self.connection).put_reserved().await?;
        config.extend(item! { "id": text(CONFIG), "format": text(Format::WRITTEN), "tables": tables.encode() });
        Ok(self.table().put_if(config, "attribute_not_exists(#id)", []).await?.is_ok())
    }
}

/// Returns the format that a configuration states; the first one where it states none.
fn format_of(config: &Item) -> Format {
    match config.get("format") {
        None => Format::FIRST,
        Some(AttributeValue::N(digits)) => digits.parse().map_or(Format::Other, Format::Number),
        Some(AttributeValue::S(name)) => Format::Named(name.clone()),
        Some(_) => Format::Other,
    }
}

impl Checkpoints {
    /// Returns the number of shards that the deployment was created with. Creates it with `shards`, or the default, if
    /// it is new. The result may differ from `shards`, and then decides. Safe to repeat: a stored configuration stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount> {
        if let Some(found) = self.stored().await? {
            return self.shard_count(&found);
        }
        let wanted = shards.unwrap_or(ShardCount::DEFAULT);
        self.put_new_config(item! { "shards": number(wanted) }).await?;
        self.shard_count(&self.stored().await?.unwrap_or_default())
    }

    /// Returns the number of shards that the deployment was created with, or `None` before that; reads consistently.
    /// For processes that only read: they must not create what others are about to create.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn deployed(&self) -> Outcome<Option<ShardCount>> {
        self.stored().await?.map(|found| self.shard_count(&found)).transpose()
    }

    /// Returns the format that the deployment is written in, or `None` before it was created; reads consistently.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn format(&self) -> Outcome<Option<Format>> {
        Ok(self.stored().await?.as_ref().map(format_of))
    }

    /// Returns the definitions of the counters; likes alone where none were defined. Reads consistently.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn definitions(&self) -> Outcome<Definitions> {
        Ok(self.usual().await?.definitions)
    }

    /// Returns the definitions with the usual topic, and the Regions whose counts are added up, from one consistent read.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn defined(&self) -> Outcome<(Usual, NamedRegions)> {
        let found = self.stored().await?.unwrap_or_default();
        let reader = self.table().reader(&found);
        Ok((Usual::decode(&reader)?, NamedRegions::decode(&reader)?))
    }

    /// Replaces the definitions `seen` by `to`, which begins with the same ones. Returns `false` where others are
    /// stored, or a definition names the usual topic: a consumer may have begun with it since the caller looked. Safe to
    /// repeat: a repetition after a success returns `false`.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool> {
        let mut values = Values::default();
        let mut condition = values.same("counters", stored_definitions(seen));
        let own: BTreeSet<&str> = to.iter().filter_map(|definition| definition.topic.as_deref()).collect();
        for topic in own {
            let topic = values.add(text(topic));
            let _ = write!(condition, " AND (attribute_not_exists(#topic) OR #topic<>{topic})");
        }
        self.replace("counters", encode_definitions(to), &condition, values).await
    }

    /// Sets an attribute to `to` if `condition` holds, whose values are `values`. Returns whether it did.
    pub(super) async fn replace(
        &self,
        name: &str,
        to: AttributeValue,
        condition: &str,
        mut values: Values,
    ) -> Outcome<bool> {
        let to = values.add(to);
        let condition = format!("attribute_exists(#id) AND {condition}");
        let update = format!("SET #{name}={to}");
        Ok(self.table().update_if(key(CONFIG), &update, &condition, values).await?.is_ok())
    }

    /// Returns the deployment's ladder, the thresholds that milestones are recorded for; it may be empty. Reads
    /// consistently.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn ladder(&self) -> Outcome<Ladder> {
        let found = self.stored().await?.unwrap_or_default();
        Ok(self.table().reader(&found).get::<Option<_>>("milestones")?.unwrap_or_default())
    }

    /// Replaces the ladder `seen` by `to`, which goes on from it. Returns `false` where another one is stored, or there
    /// is no deployment. Safe to repeat: a repetition after a success returns `false`.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool> {
        let mut values = Values::default();
        let stands = values.same("milestones", (!seen.is_empty()).then(|| text(seen.to_string())));
        self.replace("milestones", text(to.to_string()), &stands, values).await
    }
}
