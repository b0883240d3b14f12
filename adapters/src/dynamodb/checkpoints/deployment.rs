//! What a deployment was created with, over which tables, and in which form it is written: the item `config`.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::definitions::Definitions;
use tally_core::fault::Fault;
use tally_core::format::Format;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_core::ports::Outcome;
use tally_core::time::{Bounds, UnixMillis};

use super::super::changes::Changes;
use super::super::counters::Counters;
use super::super::expression::Aliases;
use super::super::get::Consistency;
use super::super::item::{Item, Reader, item, number, text};
use super::super::items::Conditional;
use super::super::names::checkpoints::{ADOPTED, CONFIG, COUNTERS, FORMAT, ID, MILESTONES, SHARDS, TABLES};
use super::super::names::{CHECKPOINTS, COUNTS};
use super::super::regions::NamedRegions;
use super::super::table_ids::{EMPTIED, SeenTables, TableIds};
use super::super::watch::{LOSS, open_once};
use super::{Checkpoints, definitions, key};

/// A configuration, as an operator has kept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub shards: ShardCount,
    pub definitions: Definitions,
    pub ladder: Ladder,
}

/// What one look at the configuration and at the tables shows.
pub(in crate::dynamodb) struct Look {
    pub(in crate::dynamodb) format: Option<Format>,
    pub(in crate::dynamodb) shards: Option<ShardCount>,
    pub(in crate::dynamodb) tables: SeenTables,
    /// When other tables were adopted last.
    pub(in crate::dynamodb) adopted: Option<String>,
}

impl Look {
    /// Whether everything is as this build left it, with this many shards.
    pub(in crate::dynamodb) fn is_as(&self, shards: ShardCount) -> bool {
        self.format == Some(Format::written()) && self.shards == Some(shards) && self.tables.is_whole()
    }
}

impl Checkpoints {
    fn shard_count(&self, config: &Item) -> Outcome<ShardCount> {
        let reader = Reader::new(self.table(), config);
        ShardCount::new(reader.required_number(SHARDS)?).map_err(|error| reader.malformed(SHARDS, error))
    }

    /// Looks at the tables, and at what the configuration says of them. What this build cannot read of it is passed over: it
    /// may be in another format.
    pub(in crate::dynamodb) async fn look(&self, consistency: Consistency) -> Outcome<Look> {
        let present = TableIds::present(&self.connection).await?;
        let config = if present.has(CHECKPOINTS) { self.items().get_as(key(CONFIG), consistency).await? } else { None };
        let tables = SeenTables {
            prefix: self.connection.tables.prefix.clone(),
            stored: config.as_ref().map(TableIds::decode),
            present,
            is_emptied: false,
        };
        let shards = config.as_ref().and_then(|config| self.shard_count(config).ok());
        let adopted = config.as_ref().and_then(|config| config.get(ADOPTED)?.as_n().ok().cloned());
        Ok(Look { format: config.as_ref().map(format_of), shards, tables, adopted })
    }

    /// The tables that are there, if all are.
    async fn all_tables(&self) -> Outcome<TableIds> {
        let present = TableIds::present(&self.connection).await?;
        let missing = present.missing().join(" and ");
        let fault = || Fault::Transient(format!("{missing}: there is no such table"));
        if missing.is_empty() { Ok(present) } else { Err(fault()) }
    }

    /// Which tables the configuration names and which there are, for those who may have to [adopt](Self::adopt_tables) them.
    ///
    /// # Errors
    /// A table cannot be looked at.
    pub async fn seen_tables(&self) -> Outcome<SeenTables> {
        let tables = self.look(Consistency::Strong).await?.tables;
        let is_emptied =
            tables.is_same(COUNTS) && !Counters::new(&self.connection).has_reserved(Consistency::Strong).await?;
        Ok(SeenTables { is_emptied, ..tables })
    }

    /// Goes on with the tables that are there, if everything still is as `seen`; whether it is. A loss is stored before for each
    /// table that is another one, since what others know of its content is wrong. Safe to repeat: what has to be there is another
    /// afterwards, and a repetition finds nothing to do.
    ///
    /// # Errors
    /// A table is missing, or there is no configuration: [`put_config`](Self::put_config) writes one. The store takes no write.
    pub async fn adopt_tables(&self, seen: &SeenTables, now: UnixMillis) -> Outcome<bool> {
        let Some(stored) = &seen.stored else {
            return Err(Fault::Fatal(format!("{}: there is no `config` to name the tables in", self.table())));
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
            open_once(&changes, now, &problem.lost).await?;
        }
        if seen.is_emptied {
            // It may not be for the first time.
            changes.open_new_loss(now, LOSS, EMPTIED).await?;
        }
        let now = self.connection.store_clock().now(now).plus(Bounds::BELIEVED);
        Counters::new(&self.connection).put_reserved_since(now).await?;
        let mut say = Aliases::default();
        let [id, tables, adopted] = say.names([ID, TABLES, ADOPTED]);
        let update = format!("SET {tables}={},{adopted}={}", say.value(seen.present.encode()), say.number(now));
        let stands = if stored.0.is_empty() {
            format!("attribute_not_exists({tables})")
        } else {
            format!("{tables}={}", say.value(stored.encode()))
        };
        let adopted =
            self.items().update_if(key(CONFIG), say, update, format!("attribute_exists({id}) AND {stands}")).await?;
        // An earlier copy may have been carried out.
        let (Conditional::Done(config) | Conditional::Refused(Some(config))) = adopted else { return Ok(false) };
        Ok(TableIds::decode(&config) == seen.present)
    }

    /// Writes the configuration where there is none, over the tables that are there; whether it did. A loss is stored before:
    /// nothing is known of what the tables hold. Safe to repeat: what is there stays, and one more loss does no harm.
    ///
    /// # Errors
    /// A table is missing, or the store takes no write.
    pub async fn put_config(&self, of: &Configuration, now: UnixMillis) -> Outcome<bool> {
        if self.items().get(key(CONFIG)).await?.is_some() {
            return Ok(false);
        }
        Changes::new(&self.connection).open_new_loss(now, LOSS, "the configuration was lost").await?;
        let mut config = item([(SHARDS, number(of.shards)), (ADOPTED, number(now))]);
        if of.definitions != Definitions::likes_alone() {
            config.insert(COUNTERS.to_owned(), definitions::encode(&of.definitions));
        }
        if !of.ladder.is_empty() {
            config.insert(MILESTONES.to_owned(), text(of.ladder.to_string()));
        }
        self.put_new_config(config).await
    }

    /// Writes the configuration of a deployment that has none; whether it did. Safe to repeat: what is there stays.
    async fn put_new_config(&self, mut config: Item) -> Outcome<bool> {
        let tables = self.all_tables().await?;
        // Before it is there, no process takes an absent counter for 0.
        Counters::new(&self.connection).put_reserved().await?;
        config.insert(ID.to_owned(), text(CONFIG));
        config.insert(FORMAT.to_owned(), text(Format::WRITTEN));
        config.insert(TABLES.to_owned(), tables.encode());
        let mut say = Aliases::default();
        let absent = format!("attribute_not_exists({})", say.name(ID));
        Ok(self.items().put_if(config, say, absent).await?.done().is_some())
    }
}

/// What a configuration states; the first format where it states none.
fn format_of(config: &Item) -> Format {
    match config.get(FORMAT) {
        None => Format::FIRST,
        Some(AttributeValue::N(digits)) => digits.parse().map_or(Format::Other, Format::Number),
        Some(AttributeValue::S(name)) => Format::Named(name.clone()),
        Some(_) => Format::Other,
    }
}

impl Checkpoints {
    /// What the deployment was created with, created now with `shards`, or the default, if it was not. The answer may
    /// differ from `shards`, and then decides. A deployment that states no format states the first one from now on. Safe to
    /// repeat: what is there stays.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount> {
        if let Some(found) = self.items().get(key(CONFIG)).await? {
            return self.shard_count(&found);
        }
        let wanted = shards.unwrap_or(ShardCount::DEFAULT);
        self.put_new_config(item([(SHARDS, number(wanted))])).await?;
        self.shard_count(&self.items().get(key(CONFIG)).await?.unwrap_or_default())
    }

    /// What the deployment was created with, read consistently; `None` before it was. For processes that only read: they
    /// must not decide what others are about to.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn deployed(&self) -> Outcome<Option<ShardCount>> {
        self.items().get(key(CONFIG)).await?.map(|found| self.shard_count(&found)).transpose()
    }

    /// In which format the deployment is written, read consistently; `None` before it was created.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn format(&self) -> Outcome<Option<Format>> {
        Ok(self.items().get(key(CONFIG)).await?.as_ref().map(format_of))
    }

    /// The deployment's counters, read consistently; likes alone where none were defined.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn definitions(&self) -> Outcome<Definitions> {
        Ok(self.defined().await?.0)
    }

    /// The same, and the Regions whose counts are added up, in one read.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn defined(&self) -> Outcome<(Definitions, NamedRegions)> {
        let found = self.items().get(key(CONFIG)).await?.unwrap_or_default();
        let reader = Reader::new(self.table(), &found);
        Ok((definitions::decode(&reader)?, NamedRegions::decode(&reader, &found)?))
    }

    /// Replaces the counters `seen` by `to`, which has the same ones first; `false` where others stand. Safe to repeat: a
    /// repetition after a success answers `false`.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool> {
        let mut say = Aliases::default();
        let counters = say.name(COUNTERS);
        let condition = if *seen == Definitions::likes_alone() {
            format!("attribute_exists({}) AND attribute_not_exists({counters})", say.name(ID))
        } else {
            format!("{counters}={}", say.value(definitions::encode(seen)))
        };
        let update = format!("SET {counters}={}", say.value(definitions::encode(to)));
        Ok(self.items().update_if(key(CONFIG), say, update, condition).await?.done().is_some())
    }

    /// The deployment's ladder, read consistently; an empty one where there is none.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn ladder(&self) -> Outcome<Ladder> {
        let found = self.items().get(key(CONFIG)).await?.unwrap_or_default();
        Ok(Reader::new(self.table(), &found).parsed(MILESTONES)?.unwrap_or_default())
    }

    /// Replaces the ladder `seen` by `to`, which goes on from it; `false` where another stands, or there is no deployment.
    /// Safe to repeat: a repetition after a success answers `false`.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool> {
        let mut say = Aliases::default();
        let [id, milestones] = say.names([ID, MILESTONES]);
        let update = format!("SET {milestones}={}", say.text(to.to_string()));
        let stands = if seen.is_empty() {
            format!("attribute_not_exists({milestones})")
        } else {
            format!("{milestones}={}", say.text(seen.to_string()))
        };
        let condition = format!("attribute_exists({id}) AND {stands}");
        Ok(self.items().update_if(key(CONFIG), say, update, condition).await?.done().is_some())
    }
}
