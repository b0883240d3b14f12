//! ExecuteStatement, and what it has in common with BatchExecuteStatement. A PartiQL statement is resolved with its table and
//! executed as a PutItem, UpdateItem, DeleteItem or GetItem.

mod batch;

use serde::Deserialize;

pub(crate) use self::batch::{StatementBatch, execute_batch};
use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::schema::Schema;
use crate::error::{Error, Kind};
use crate::expression::partiql::{Body, Fields, Filter, no_item};
use crate::expression::{Condition, Statement};
use crate::json::Writer;
use crate::limits::STATEMENT_CHARS;
use crate::value::{Item, Value};

use super::capacity::{Consumed, Report};
use super::items::read_item;
use super::params::{constraint, shows_item_on_failure, wrong_length};
use super::write::{Action, Returned, Verb};

const NO_KEY: &str = "Where clause does not contain a mandatory equality on all key attributes";
const NO_READ_KEY: &str = "A SELECT without the whole key is not supported by this emulator";
const NO_BATCH_KEY: &str =
    "Select statements within BatchExecuteStatement must specify the primary key in the where clause.";

/// A statement in a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct StatementRequest {
    #[serde(default)]
    pub(super) statement: String,
    parameters: Option<Vec<Value>>,
    consistent_read: Option<bool>,
    return_values_on_condition_check_failure: Option<String>,
    // The remaining ones are parameters of ExecuteStatement.
    return_consumed_capacity: Option<String>,
}

/// A parsed statement.
#[derive(Clone, Debug)]
struct Prepared {
    statement: Statement,
    consistent: bool,
    shows_item: bool,
}

impl StatementRequest {
    /// Checks the limits of a statement; `place` is its position in the request, for messages.
    fn check(&self, place: impl std::fmt::Display) -> Result<(), Error> {
        if !(1..=STATEMENT_CHARS).contains(&self.statement.chars().count()) {
            return Err(wrong_length(&format!("{place}statement"), STATEMENT_CHARS));
        }
        if self.parameters.as_ref().is_some_and(Vec::is_empty) {
            let rule = "Member must have length greater than or equal to 1";
            return Err(constraint(&format!("{place}parameters"), "[]", rule));
        }
        shows_item_on_failure(self.return_values_on_condition_check_failure.as_deref()).map(drop)
    }

    fn read(&mut self) -> Result<Prepared, Error> {
        let shows_item = shows_item_on_failure(self.return_values_on_condition_check_failure.as_deref())?;
        let statement = Statement::parse(&self.statement, self.parameters.take().unwrap_or_default())?;
        Ok(Prepared { statement, consistent: self.consistent_read.unwrap_or(false), shows_item })
    }
}

/// A statement that is resolved with its table.
enum Met {
    Write { action: Action, key: Key },
    Read { table: String, key: Key, condition: Option<Condition>, fields: Option<Fields>, consistent: bool },
}

impl Prepared {
    /// Resolves the statement with its table. It must name one whole key, and a `SELECT` in a batch nothing else.
    fn meet(self, engine: &Engine, in_batch: bool) -> Result<Met, Error> {
        let Self { statement: Statement { table: name, body }, consistent, shows_item } = self;
        check_table(&name)?;
        let table = engine.table(&name)?;
        let schema = &table.schema;
        let hash = schema.hash.name.as_str();
        let action = match body {
            Body::Insert(item) => {
                check_keys(&item, schema)?;
                Action::new(Verb::Put, name, item, None, Some(no_item(hash)), false)
            }
            Body::Update(update, mut filter) => {
                let key = whole_key(&mut filter, schema)?.ok_or_else(|| Error::validation(NO_KEY))?;
                let condition = Some(filter.of_an_item(hash));
                Action::new(Verb::Update, name, key, Some(update), condition, shows_item)
            }
            Body::Delete(mut filter) => {
                let key = whole_key(&mut filter, schema)?.ok_or_else(|| Error::validation(NO_KEY))?;
                let condition = filter.of_any_item(hash);
                Action::new(Verb::Delete, name, key, None, condition, shows_item)
            }
            Body::Select(fields, mut filter) => {
                let key = whole_key(&mut filter, schema)?.filter(|_| !in_batch || filter.is_empty());
                let refused = if in_batch { NO_BATCH_KEY } else { NO_READ_KEY };
                let key = schema.key_of(&key.ok_or_else(|| Error::validation(refused))?)?;
                return Ok(Met::Read { table: name, key, condition: filter.into_condition(), fields, consistent });
            }
        };
        Ok(Met::Write { key: action.key(table)?, action })
    }
}

impl Met {
    /// The table and the key of its item.
    fn item(&self) -> (&str, &Key) {
        match self {
            Self::Write { action, key } => (&action.table, key),
            Self::Read { table, key, .. } => (table, key),
        }
    }

    /// Executes it alone, and adds the cost. Returns what a `SELECT` has found.
    fn carry_out(self, engine: &mut Engine, consumed: &mut Consumed) -> Result<Option<Returned>, Error> {
        match self {
            Self::Write { mut action, key } => match action.carry_out(&key, engine, consumed) {
                Ok(_) => Ok(None),
                Err(error) if action.verb == Verb::Put && error.kind == Kind::ConditionalCheckFailed => {
                    Err(Error::new(Kind::DuplicateItem, "Duplicate primary key exists in table"))
                }
                Err(error) => Err(error),
            },
            Self::Read { table, key, condition, fields, consistent } => {
                let Some(image) = read_item(&table, &key, consistent, engine, consumed)? else { return Ok(None) };
                if condition.is_some_and(|condition| !condition.holds(Some(&image.item()))) {
                    return Ok(None);
                }
                Ok(Some(match fields {
                    Some(fields) => Returned::Parts(fields.project(&image.item())),
                    None => Returned::Whole(image),
                }))
            }
        }
    }
}

fn check_table(name: &str) -> Result<(), Error> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (3..=255).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(Error::validation(
        "Table name should be within the length [3, 255] and only contain 'a-z', 'A-Z', '0-9', '-', '_', '.'.",
    ))
}

/// Checks that an inserted item has all key attributes, with the right types.
fn check_keys(item: &Item, schema: &Schema) -> Result<(), Error> {
    for attribute in schema.attributes() {
        let Some(value) = item.get(&attribute.name) else {
            let absent = format!("Key attribute should be present in the item: Key {}", attribute.name);
            return Err(Error::validation(absent));
        };
        check_type(&attribute.name, value, attribute.key_type)?;
    }
    Ok(())
}

fn check_type(name: &str, value: &Value, code: &str) -> Result<(), Error> {
    if value.type_code() == code {
        return Ok(());
    }
    Err(Error::validation(format!(
        "Key attribute's data type should match its data type in table's schema: Key {name}"
    )))
}

/// The whole key in a `WHERE` clause.
fn whole_key(filter: &mut Filter, schema: &Schema) -> Result<Option<Item>, Error> {
    let mut key = Item::new();
    for attribute in schema.attributes() {
        let Some(value) = filter.take_value(&attribute.name)? else { return Ok(None) };
        check_type(&attribute.name, &value, attribute.key_type)?;
        key.insert(attribute.name.as_str(), value);
    }
    Ok(Some(key))
}

/// Executes one statement.
pub(super) fn execute(mut request: StatementRequest, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    request.check("")?;
    let mut consumed = Consumed::default();
    let found = request.read()?.meet(engine, false)?.carry_out(engine, &mut consumed)?;
    Ok(Writer::document(|out| {
        out.key("Items").array(|out| found.iter().for_each(|item| item.write(out)));
        consumed.write_one(out, report);
    }))
}
