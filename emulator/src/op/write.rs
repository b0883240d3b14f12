//! One write of one item, checked before anything changes: the common part of single writes and transactions.

use std::hash::{Hash, Hasher};

use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::schema::KeyAttribute;
use crate::engine::table::{Stored, Table};
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::expression::{Condition, Update};
use crate::json::Writer;
use crate::limits::ITEM_BYTES;
use crate::value::{Item, Values};

use super::capacity::{Consumed, write_halves};
use super::params::{Names, ReturnValues, placeholders, required, shows_item_on_failure};

/// The four kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Put,
    Update,
    Delete,
    Check,
}

/// The parameters of a write.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct Parameters {
    #[serde(default)]
    pub(super) table_name: String,
    item: Option<Item>,
    key: Option<Item>,
    pub(super) update_expression: Option<String>,
    pub(super) condition_expression: Option<String>,
    expression_attribute_names: Names,
    expression_attribute_values: Option<Values>,
    return_values_on_condition_check_failure: Option<String>,
    // The remaining ones are parameters of single writes.
    pub(super) return_values: Option<String>,
    pub(super) return_consumed_capacity: Option<String>,
    pub(super) return_item_collection_metrics: Option<String>,
}

impl Parameters {
    /// The bytes that were sent, which a transaction's limit is about, not the bytes that are stored.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.update_expression.iter().chain(&self.condition_expression).map(String::len).sum::<usize>();
        let names =
            self.expression_attribute_names.iter().flatten().map(|(key, name)| key.len() + name.len()).sum::<usize>();
        let values = self.expression_attribute_values.iter().flat_map(|values| &values.0);
        let values = values.map(|(key, value)| key.len() + value.size());
        let items = self.item.iter().chain(&self.key).map(Item::size).sum::<usize>();
        texts + names + values.sum::<usize>() + items
    }

    /// Hashes everything that distinguishes this write from others.
    pub(super) fn fingerprint(&self, verb: Verb, hasher: &mut impl Hasher) {
        verb.hash(hasher);
        (&self.table_name, &self.item, &self.key, &self.update_expression, &self.condition_expression).hash(hasher);
        (&self.expression_attribute_names, &self.expression_attribute_values).hash(hasher);
        self.return_values_on_condition_check_failure.hash(hasher);
    }

    /// Parses the expressions.
    pub(super) fn parse(self, verb: Verb) -> Result<Action, Error> {
        let subject = match verb {
            Verb::Put => required("item", self.item)?,
            _ => required("key", self.key)?,
        };
        let mut open = placeholders(self.expression_attribute_names, self.expression_attribute_values)?;
        let update = self.update_expression.as_deref().filter(|_| verb == Verb::Update);
        let update = update.map(|text| Update::parse(text, &mut open)).transpose()?;
        let condition = self.condition_expression.as_deref();
        let condition = condition.map(|text| Condition::parse("ConditionExpression", text, &mut open)).transpose()?;
        if update.is_some() || condition.is_some() {
            open.finish()?;
        } else {
            let absent = match verb {
                Verb::Update => "UpdateExpression and ConditionExpression are null",
                _ => "ConditionExpression is null",
            };
            open.refuse_without_expression(absent)?;
        }
        let shows_item = shows_item_on_failure(self.return_values_on_condition_check_failure.as_deref())?;
        Ok(Action::new(verb, self.table_name, subject, update, condition, shows_item))
    }
}

/// A parsed write.
#[derive(Debug)]
pub(crate) struct Action {
    pub(super) verb: Verb,
    pub(super) table: String,
    /// The item to put, or the key for other verbs.
    pub(super) subject: Item,
    pub(super) update: Option<Update>,
    condition: Option<Condition>,
    shows_item: bool,
}

/// The effect of a write.
#[derive(Debug)]
pub(super) struct Plan {
    old: Option<Image>,
    pub(super) new: Option<Stored>,
}

impl Action {
    pub(super) fn new(
        verb: Verb,
        table: String,
        subject: Item,
        update: Option<Update>,
        condition: Option<Condition>,
        shows_item: bool,
    ) -> Self {
        Self { verb, table, subject, update, condition, shows_item }
    }

    /// The item's key, if the request fits the table.
    pub(super) fn key(&self, table: &Table) -> Result<Key, Error> {
        if let Some(update) = &self.update {
            update.refuse_keys(&table.schema.names().collect::<Vec<_>>())?;
        }
        match self.verb {
            Verb::Put => {
                let key = table.schema.key_of_item(&self.subject)?;
                check_item(table, &self.subject)?;
                Ok(key)
            }
            _ => table.schema.key_of(&self.subject),
        }
    }

    /// Executes the write alone, and adds the cost, which is the same if the condition is false.
    pub(super) fn carry_out(&mut self, key: &Key, engine: &mut Engine, consumed: &mut Consumed) -> Result<Plan, Error> {
        engine.admit(Use::Write, &self.table, key)?;
        let table = engine.table(&self.table)?;
        match self.plan(key, table) {
            Ok(plan) => {
                consumed.pay(Use::Write, &self.table, key, write_halves(plan.bytes()), engine);
                engine.write(&self.table, key, plan.new.as_ref())?;
                Ok(plan)
            }
            Err(refused) => {
                let halves = write_halves(table.rows.get(key, None).map_or(0, Image::size));
                consumed.pay(Use::Write, &self.table, key, halves, engine);
                Err(refused)
            }
        }
    }

    /// The effect of this write on the current item.
    pub(super) fn plan(&mut self, key: &Key, table: &Table) -> Result<Plan, Error> {
        let old = table.rows.get(key, None);
        let before = match (&self.condition, self.verb) {
            (None, Verb::Put | Verb::Delete | Verb::Check) => None,
            _ => old.map(Image::item),
        };
        if let Some(condition) = &self.condition
            && !condition.holds(before.as_ref())
        {
            return Err(Error::condition_failed(old.filter(|_| self.shows_item).cloned()));
        }
        let new = match self.verb {
            Verb::Put => Some(std::mem::take(&mut self.subject)),
            Verb::Delete => None,
            Verb::Check => return Ok(Plan { old: old.cloned(), new: None }),
            // DynamoDB does not even check the paths then.
            Verb::Update if old.is_none() && self.update.as_ref().is_some_and(Update::only_removes) => None,
            Verb::Update => {
                let before = before.unwrap_or_else(|| self.subject.clone());
                let after = match &self.update {
                    Some(update) => update.apply(&before)?,
                    None => before,
                };
                check_item(table, &after)?;
                Some(after)
            }
        };
        let new = new.map(|item| Stored { image: Image::new(&item, &table.schema), item });
        Ok(Plan { old: old.cloned(), new })
    }
}

impl Plan {
    /// The bytes that this write counts for: those before or after it, whichever are more.
    pub(super) fn bytes(&self) -> usize {
        let old = self.old.as_ref().map_or(0, Image::size);
        self.new.as_ref().map_or(0, |new| new.image.size()).max(old)
    }

    /// The requested part of the item before or after the write, if there is any.
    pub(super) fn returned(&self, returns: ReturnValues, action: &Action) -> Option<Returned> {
        let touched = |item: &Item| action.update.as_ref().map(|update| update.touched(item));
        let parts = match returns {
            ReturnValues::None => None,
            ReturnValues::AllOld => return self.old.clone().map(Returned::Whole),
            ReturnValues::AllNew => return self.new.as_ref().map(|new| Returned::Whole(new.image.clone())),
            ReturnValues::UpdatedOld => self.old.as_ref().map(Image::item).as_ref().and_then(touched),
            ReturnValues::UpdatedNew => self.new.as_ref().and_then(|new| touched(&new.item)),
        };
        parts.filter(|parts| !parts.is_empty()).map(Returned::Parts)
    }
}

/// An item, or parts of one, in an answer.
#[derive(Debug)]
pub(super) enum Returned {
    Whole(Image),
    Parts(Item),
}

impl Returned {
    pub(super) fn write(&self, out: &mut Writer) {
        match self {
            Self::Whole(image) => out.image(image),
            Self::Parts(item) => out.serialize(item),
        }
    }
}

/// Checks the item's size, and the types of its index keys.
fn check_item(table: &Table, item: &Item) -> Result<(), Error> {
    if item.size() > ITEM_BYTES {
        return Err(Error::validation("Item size has exceeded the maximum allowed size"));
    }
    for index in &table.indexes {
        let KeyAttribute { name, key_type } = &index.range;
        let Some(value) = item.get(name) else { continue };
        let found = value.type_code();
        if found != *key_type {
            return Err(Error::parameters(format!(
                "Type mismatch for Index Key {name} Expected: {key_type} Actual: {found} IndexName: {}",
                index.name
            )));
        }
        index.range.check_size(value)?;
    }
    Ok(())
}
