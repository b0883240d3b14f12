//! The maps that stand among the rows of sets.

use std::collections::{BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::homes::{CounterMap, Homes, Sought};
use tally_core::ids::{CounterId, ReservedKey, RowKey, ShardCount};
use tally_core::ports::{CounterMaps, Outcome};
use tally_core::time::UnixMillis;

use super::super::connection::Connection;
use super::super::expression::Aliases;
use super::super::fault::{fault, unless_refused};
use super::super::get::{self, Consistency};
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::PK;
use super::super::names::checkpoints;
use super::super::names::likes::{ASKED, AT, DECIDED_BY, HOMES, NEWEST, USER_ID};
use super::row_key;

/// The maps of sets.
#[derive(Clone, Debug)]
pub struct Maps {
    connection: Connection,
}

impl Maps {
    /// The maps of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn config(&self) -> Item {
        item([(checkpoints::ID, text(checkpoints::CONFIG))])
    }
}

fn key(counter: &CounterId) -> Item {
    row_key(RowKey::first(counter).to_string(), text(ReservedKey::Homes.to_string()))
}

fn encode(counter: &CounterId, map: &CounterMap) -> Item {
    let mut encoded = key(counter);
    let homes = map.homes().iter().map(|shards| shards.to_string()).collect();
    encoded.extend(item([
        (HOMES, AttributeValue::Ns(homes)),
        (NEWEST, number(map.newest())),
        (DECIDED_BY, text(map.decided_by.as_str())),
        (AT, number(map.at)),
    ]));
    encoded.extend(map.asked.map(|asked| (ASKED.to_owned(), number(asked))));
    encoded
}

fn decode(reader: &Reader<'_>) -> Outcome<CounterMap> {
    let shards = |name, count: u64| ShardCount::new(count).map_err(|error| reader.malformed(name, error));
    let home = |text: &String| shards(HOMES, text.parse().map_err(|error| reader.malformed(HOMES, error))?);
    let homes = reader.number_set(HOMES)?.iter().map(home).collect::<Outcome<Vec<_>>>()?;
    if homes.is_empty() {
        return Err(reader.malformed(HOMES, "missing"));
    }
    let newest = shards(NEWEST, reader.required_number(NEWEST)?)?;
    let asked = reader.number(ASKED)?.map(|asked| shards(ASKED, asked)).transpose()?;
    let (decided_by, at) = (reader.required(DECIDED_BY)?, UnixMillis(reader.required_number(AT)?));
    let map = CounterMap::new(homes.into_iter().collect::<Homes>(), newest, asked, decided_by, at);
    map.map_err(|error| reader.malformed(NEWEST, error))
}

#[async_trait]
impl CounterMaps for Maps {
    async fn map(&self, counter: &CounterId) -> Outcome<Option<CounterMap>> {
        let table = &self.connection.tables.likes;
        let get = self.connection.client.get_item().table_name(table).set_key(Some(key(counter)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(table, &error))?;
        reply.item().map(|found| decode(&Reader::new(table, found))).transpose()
    }

    async fn maps(&self, counters: &[CounterId]) -> Outcome<Vec<Option<CounterMap>>> {
        let table = &self.connection.tables.likes;
        let keys: Vec<Item> = counters.iter().map(key).collect();
        let found = get::items(&self.connection, table, &keys, Consistency::Strong).await?;
        let mut maps = HashMap::with_capacity(found.len());
        for found in &found {
            let reader = Reader::new(table, found);
            maps.insert(reader.required_text(PK)?, decode(&reader)?);
        }
        Ok(counters.iter().map(|counter| maps.get(RowKey::first(counter).to_string().as_str()).copied()).collect())
    }

    async fn locate(&self, sought: &[Sought]) -> Outcome<Vec<Option<ShardCount>>> {
        let table = &self.connection.tables.likes;
        let places = |sought: &Sought| {
            let member = sought.member.to_string();
            sought.keys().map(|(home, key)| (home, (key.to_string(), member.clone()))).collect::<Vec<_>>()
        };
        let sought: Vec<_> = sought.iter().map(places).collect();
        // A request that names a key twice is refused.
        let distinct: BTreeSet<_> = sought.iter().flatten().map(|(_, place)| place).collect();
        let keys = distinct.into_iter().map(|(pk, member)| row_key(pk.clone(), text(member.clone())));
        let found = get::items(&self.connection, table, &keys.collect::<Vec<_>>(), Consistency::Strong).await?;
        let place = |row| {
            let row = Reader::new(table, row);
            Ok((row.required_text(PK)?.to_owned(), row.required_text(USER_ID)?.to_owned()))
        };
        let found = found.iter().map(place).collect::<Outcome<HashSet<_>>>()?;
        let home = |places: Vec<(ShardCount, _)>| places.into_iter().find(|(_, place)| found.contains(place));
        Ok(sought.into_iter().map(|places| home(places).map(|(home, _)| home)).collect())
    }

    /// Safe to repeat: the time that has to stand is another afterwards.
    async fn put_map(&self, counter: &CounterId, seen: Option<&CounterMap>, map: &CounterMap) -> Outcome<bool> {
        let table = &self.connection.tables.likes;
        let mut say = Aliases::default();
        let condition = match seen {
            None => format!("attribute_not_exists({})", say.name(PK)),
            Some(seen) => format!("{}={}", say.name(AT), say.number(seen.at)),
        };
        let (names, values) = say.finish();
        let put = self
            .connection
            .client
            .put_item()
            .table_name(table)
            .set_item(Some(encode(counter, map)))
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(table, put.send().await).map(|put| put.is_some())
    }

    async fn announced(&self) -> Outcome<u64> {
        let table = &self.connection.tables.checkpoints;
        let get = self.connection.client.get_item().table_name(table).set_key(Some(self.config()));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(table, &error))?;
        let announced = reply.item().map(|found| Reader::new(table, found).number(checkpoints::HOMES)).transpose()?;
        Ok(announced.flatten().unwrap_or(0))
    }

    /// Safe to repeat: what is counted twice makes processes read once more.
    async fn announce(&self) -> Outcome<()> {
        let table = &self.connection.tables.checkpoints;
        let mut say = Aliases::default();
        let (id, homes, one) = (say.name(checkpoints::ID), say.name(checkpoints::HOMES), say.number(1));
        let (names, values) = say.finish();
        let update = self
            .connection
            .client
            .update_item()
            .table_name(table)
            .set_key(Some(self.config()))
            .update_expression(format!("ADD {homes} {one}"))
            .condition_expression(format!("attribute_exists({id})"))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(table, update.send().await).map(|_| ())
    }
}
