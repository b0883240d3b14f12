//! Requests for the items of one of the four tables; the other modules make most of theirs through [`Table`]. An
//! expression names each attribute by `#` and its name, so that no reserved word can break it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

use aws_sdk_dynamodb::Error;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::scan::builders::ScanFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, KeysAndAttributes, PutRequest, ReturnValue, ReturnValuesOnConditionCheckFailure, WriteRequest,
};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::item::{Item, Reader, text};

/// How many keys one BatchGetItem takes.
const KEYS: usize = 100;
/// How many items one BatchWriteItem takes.
pub const PUTS: usize = 25;
/// How many times a batch is sent, before items that are left out are a fault: 3 s of waits at most.
const ROUNDS: u32 = 8;

/// How recent an item is when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The item as it was at some moment of the last second or so, for half the read units.
    Eventual,
    /// The item with every write whose answer came before the read.
    Strong,
}

/// One of the four tables.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub(super) connection: &'a Connection,
    pub(super) name: &'a str,
}

/// The outcome of a conditional write: what it returns, or the item, if any, for which its condition does not hold.
pub(super) type Conditional<T> = Result<T, Option<Item>>;

/// Returns what each `#name` in these expressions stands for: the attribute of that name. `None` rather than an empty
/// map.
pub(super) fn names(expressions: &[&str]) -> Option<HashMap<String, String>> {
    let parts = expressions.iter().flat_map(|expression| expression.split('#').skip(1));
    let name = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        (format!("#{}", &part[..end]), part[..end].to_owned())
    };
    let names: HashMap<_, _> = parts.map(name).collect();
    (!names.is_empty()).then_some(names)
}

/// The values that stand for `:value` in a request's expressions.
#[derive(Default)]
pub(super) struct Values(HashMap<String, AttributeValue>);

impl Values {
    /// Adds a value, and returns what stands for it in an expression.
    pub(super) fn add(&mut self, value: AttributeValue) -> String {
        let alias = format!(":{}", self.0.len());
        self.0.insert(alias.clone(), value);
        alias
    }

    /// Returns the condition that an attribute has this value, or is absent.
    pub(super) fn same(&mut self, name: &str, value: Option<AttributeValue>) -> String {
        match value {
            Some(value) => format!("#{name}={}", self.add(value)),
            None => format!("attribute_not_exists(#{name})"),
        }
    }

    /// Returns the update that sets attributes, and removes those without a value.
    pub(super) fn update(
        &mut self,
        attributes: impl IntoIterator<Item = (impl Display, Option<AttributeValue>)>,
    ) -> String {
        let (mut set, mut removed) = (Vec::new(), Vec::new());
        for (name, value) in attributes {
            match value {
                Some(value) => set.push(format!("#{name}={}", self.add(value))),
                None => removed.push(format!("#{name}")),
            }
        }
        let remove = if removed.is_empty() { "" } else { " REMOVE " };
        format!("SET {}{remove}{}", set.join(","), removed.join(","))
    }

    /// Returns the values as a request takes them: `None` rather than an empty map.
    pub(super) fn finish(self) -> Option<HashMap<String, AttributeValue>> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

impl<const N: usize> From<[(&str, AttributeValue); N]> for Values {
    fn from(values: [(&str, AttributeValue); N]) -> Self {
        Self(values.into_iter().map(|(alias, value)| (alias.to_owned(), value)).collect())
    }
}

impl Connection {
    fn table<'a>(&'a self, name: &'a str) -> Table<'a> {
        Table { connection: self, name }
    }

    pub(super) fn likes(&self) -> Table<'_> {
        self.table(&self.tables.likes)
    }

    pub(super) fn counts(&self) -> Table<'_> {
        self.table(&self.tables.counts)
    }

    pub(super) fn checkpoints(&self) -> Table<'_> {
        self.table(&self.tables.checkpoints)
    }

    pub(super) fn recounts(&self) -> Table<'_> {
        self.table(&self.tables.recounts)
    }
}

impl<'a> Table<'a> {
    fn client(self) -> &'a aws_sdk_dynamodb::Client {
        &self.connection.client
    }

    pub(super) fn fault<E>(self, error: &SdkError<E>) -> Fault
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        fault(self.name, error)
    }

    pub(super) fn reader(self, item: &'a Item) -> Reader<'a> {
        Reader { table: self.name, item }
    }

    pub(super) async fn get(self, key: Item, consistency: Consistency) -> Outcome<Option<Item>> {
        let get = self.client().get_item().table_name(self.name).set_key(Some(key));
        let reply = get.consistent_read(consistency == Consistency::Strong).send().await;
        Ok(reply.map_err(|error| self.fault(&error))?.item)
    }

    /// Reads the item under `key` consistently, and decodes it.
    pub(super) async fn find<T>(self, key: Item, decode: impl Fn(&Reader<'_>) -> Outcome<T>) -> Outcome<Option<T>> {
        let found = self.get(key, Consistency::Strong).await?;
        found.map(|found| decode(&self.reader(&found))).transpose()
    }

    /// Returns the items under the distinct `keys`, in no order, without absent ones. BatchGetItem may leave some keys
    /// out; it is asked for those again.
    ///
    /// # Errors
    /// [`Fault::Throttled`] where some keys are left out again and again.
    async fn get_all(self, keys: &[Item], consistency: Consistency) -> Outcome<Vec<Item>> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS) {
            let mut left = keys.to_vec();
            for round in 0.. {
                self.wait(round, left.len()).await?;
                let asked = KeysAndAttributes::builder().set_keys(Some(left));
                let asked = asked.consistent_read(consistency == Consistency::Strong).build().expect("keys are set");
                let get = self.client().batch_get_item().request_items(self.name, asked);
                let reply = get.send().await.map_err(|error| self.fault(&error))?;
                found.extend(reply.responses.and_then(|mut tables| tables.remove(self.name)).unwrap_or_default());
                let unprocessed = reply.unprocessed_keys.and_then(|mut tables| tables.remove(self.name));
                left = unprocessed.map(|left| left.keys).unwrap_or_default();
                if left.is_empty() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Reads items with different keys. The key of each item is `rest` and, in the attribute `part`, one of these texts.
    /// Returns what `decode` makes of each item, under the name that is given beside its text.
    pub(super) async fn find_all<K: Ord, T>(
        self,
        (part, rest): (&str, Item),
        named: impl IntoIterator<Item = (String, K)>,
        consistency: Consistency,
        decode: impl Fn(&Reader<'_>) -> Outcome<T>,
    ) -> Outcome<BTreeMap<K, T>> {
        let (texts, names): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let key = |part_of: &String| rest.clone().into_iter().chain([(part.to_owned(), text(part_of))]).collect();
        let keys: Vec<Item> = texts.iter().map(key).collect();
        let mut names: HashMap<_, _> = texts.into_iter().zip(names).collect();
        let found = self.get_all(&keys, consistency).await?;
        let read = |item: &Item| {
            let reader = self.reader(item);
            let name = names.remove(reader.text(part)?);
            Ok((name.ok_or_else(|| reader.malformed(part, "it was not asked for"))?, decode(&reader)?))
        };
        found.iter().map(read).collect()
    }

    /// Puts items of different keys, each over whatever was there: one at least, [`PUTS`] at most. BatchWriteItem may
    /// leave some out; it is asked to write those again. Safe to repeat wherever each put is.
    ///
    /// # Errors
    /// The table takes no write; [`Fault::Throttled`] where some items are left out again and again.
    pub(super) async fn put_all(self, items: impl IntoIterator<Item = Item>) -> Outcome<()> {
        let put = |item| PutRequest::builder().set_item(Some(item)).build().expect("the item is set");
        let request = |item| WriteRequest::builder().put_request(put(item)).build();
        let mut left: Vec<WriteRequest> = items.into_iter().map(request).collect();
        for round in 0.. {
            self.wait(round, left.len()).await?;
            let write = self.client().batch_write_item().request_items(self.name, left);
            let reply = write.send().await.map_err(|error| self.fault(&error))?;
            left = reply.unprocessed_items.and_then(|mut tables| tables.remove(self.name)).unwrap_or_default();
            if left.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Waits before a round of a batch; `left` items are not done yet.
    async fn wait(self, round: u32, left: usize) -> Outcome<()> {
        if round == ROUNDS {
            let left = format!("table {}: {left} items of a batch were left out {ROUNDS} times", self.name);
            return Err(Fault::Throttled(left));
        }
        if round > 0 {
            tokio::time::sleep(Backoff::STORE.wait(round - 1, self.connection.jitter.fraction())).await;
        }
        Ok(())
    }

    /// Puts an item over the one that is there. Safe to repeat wherever the same item is meant to be there.
    pub(super) async fn put(self, item: Item) -> Outcome<()> {
        let put = self.client().put_item().table_name(self.name).set_item(Some(item));
        put.send().await.map(|_| ()).map_err(|error| self.fault(&error))
    }

    /// Returns the outcome of a conditional write.
    pub(super) fn conditional<T, E>(self, sent: Result<T, SdkError<E>>) -> Outcome<Conditional<T>>
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
        Error: From<SdkError<E>>,
    {
        match sent {
            Ok(reply) => Ok(Ok(reply)),
            Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(Err(match error.into() {
                Error::ConditionalCheckFailedException(refused) => refused.item,
                _ => None,
            })),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Puts an item if `condition` holds, and returns it. Safe to repeat wherever carrying it out makes the condition
    /// false.
    pub(super) async fn put_if(
        self,
        item: Item,
        condition: &str,
        values: impl Into<Values>,
    ) -> Outcome<Conditional<Item>> {
        let put = self
            .client()
            .put_item()
            .table_name(self.name)
            .set_item(Some(item.clone()))
            .condition_expression(condition)
            .set_expression_attribute_names(names(&[condition]))
            .set_expression_attribute_values(values.into().finish())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(self.conditional(put.send().await)?.map(|_| item))
    }

    /// Puts an item if there is none under its key, which is an `id`. Decodes the item that is there afterwards. Safe
    /// to repeat: what is there stays.
    pub(super) async fn put_new<T>(self, item: Item, decode: impl Fn(&Reader<'_>) -> Outcome<T>) -> Outcome<T> {
        match self.put_if(item, "attribute_not_exists(#id)", []).await? {
            Ok(item) | Err(Some(item)) => decode(&self.reader(&item)),
            Err(None) => Err(Fault::Transient(format!("{}: a put was refused over no item", self.name))),
        }
    }

    /// Replaces `seen` by `to` if these attributes are as in `seen`. Returns whether `to` is there afterwards. Safe to
    /// repeat: after an earlier copy the item reads as `expected`.
    pub(super) async fn replace<T: PartialEq>(
        self,
        mut seen: Item,
        attributes: &[&str],
        to: Item,
        (expected, decode): (&T, impl Fn(&Reader<'_>) -> Outcome<T>),
    ) -> Outcome<bool> {
        let mut values = Values::default();
        let same: Vec<String> = attributes.iter().map(|name| values.same(name, seen.remove(*name))).collect();
        match self.put_if(to, &same.join(" AND "), values).await? {
            Ok(_) => Ok(true),
            Err(None) => Ok(false),
            Err(Some(found)) => Ok(decode(&self.reader(&found))? == *expected),
        }
    }

    /// Updates the item under `key`, and returns it as it is afterwards.
    pub(super) async fn update(self, key: Item, update: &str, values: impl Into<Values>) -> Outcome<Item> {
        let update = self.updating(key, update, "", values.into());
        Ok(update.send().await.map_err(|error| self.fault(&error))?.attributes.unwrap_or_default())
    }

    /// Updates the item under `key` if `condition` holds, and returns it as it is afterwards. Safe to repeat wherever
    /// carrying it out makes the condition false, or leaves the item as it is.
    pub(super) async fn update_if(
        self,
        key: Item,
        update: &str,
        condition: &str,
        values: impl Into<Values>,
    ) -> Outcome<Conditional<Item>> {
        let update = self.updating(key, update, condition, values.into()).condition_expression(condition);
        let update = update.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(self.conditional(update.send().await)?.map(|reply| reply.attributes.unwrap_or_default()))
    }

    fn updating(self, key: Item, update: &str, condition: &str, values: Values) -> UpdateItemFluentBuilder {
        self.client()
            .update_item()
            .table_name(self.name)
            .set_key(Some(key))
            .update_expression(update)
            .set_expression_attribute_names(names(&[update, condition]))
            .set_expression_attribute_values(values.finish())
            .return_values(ReturnValue::AllNew)
    }

    /// Deletes the item under `key` if `condition` holds. Safe to repeat: what is gone stays gone.
    pub(super) async fn delete_if(self, key: Item, condition: &str, values: impl Into<Values>) -> Outcome<()> {
        let delete = self
            .client()
            .delete_item()
            .table_name(self.name)
            .set_key(Some(key))
            .condition_expression(condition)
            .set_expression_attribute_names(names(&[condition]))
            .set_expression_attribute_values(values.into().finish());
        self.conditional(delete.send().await).map(drop)
    }

    /// Builds a consistent query of the items under `condition`, with these attributes of them, or all.
    pub(super) fn query(
        self,
        condition: &str,
        projection: Option<&str>,
        values: impl Into<Values>,
    ) -> QueryFluentBuilder {
        self.client()
            .query()
            .table_name(self.name)
            .key_condition_expression(condition)
            .set_projection_expression(projection.map(str::to_owned))
            .set_expression_attribute_names(names(&[condition, projection.unwrap_or_default()]))
            .set_expression_attribute_values(values.into().finish())
            .consistent_read(true)
    }

    /// Builds a consistent scan, with these attributes of each item, or all.
    pub(super) fn scan(self, projection: Option<&str>) -> ScanFluentBuilder {
        self.client()
            .scan()
            .table_name(self.name)
            .set_projection_expression(projection.map(str::to_owned))
            .set_expression_attribute_names(projection.and_then(|projection| names(&[projection])))
            .consistent_read(true)
    }

    /// Sends a scan for all its pages, and calls `take` with each item. The SDK's paginator would hand pages over
    /// between tasks, which changes the order of events in every seeded schedule.
    pub(super) async fn scan_all(
        self,
        scan: ScanFluentBuilder,
        mut take: impl FnMut(&Reader<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut start = None;
        loop {
            let page = scan.clone().set_exclusive_start_key(start);
            let reply = page.send().await.map_err(|error| self.fault(&error))?;
            reply.items().iter().try_for_each(|item| take(&self.reader(item)))?;
            start = reply.last_evaluated_key;
            if start.is_none() {
                return Ok(());
            }
        }
    }
}
