//! Converts counters to items of the table `like_counts` and back, and a counter's update to a conditional write. That
//! is a statement of a batch, or part of a transaction that also records which milestones (thresholds of the total) the
//! update reaches.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, Shard};
use tally_core::ports::Outcome;

use super::super::item::{Attribute as _, Reader, number, number_set, text};
use super::super::statement::statement;
use super::super::table::Values;

/// The update of a counter from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub counter: CounterId,
    /// The state as it was last read or written; `None` where the counter was absent.
    pub before: Option<Counter>,
    /// The state afterwards.
    pub after: Counter,
}

/// Attributes with their values; `None` where an attribute is absent.
type Attributes = Vec<(Cow<'static, str>, Option<AttributeValue>)>;

/// What an update does to an item that is there.
struct Edit {
    /// What it sets or removes.
    written: Attributes,
    /// What has to stand there, or it is refused.
    compared: Attributes,
}

impl Edit {
    /// Adds an attribute that is compared, and written if it differs.
    fn between(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        before: Option<AttributeValue>,
        after: Option<AttributeValue>,
    ) {
        let name = name.into();
        if before != after {
            self.written.push((name.clone(), after));
        }
        self.compared.push((name, before));
    }

    /// Returns the changes of a counter. An update sets only what differs, and compares it with what it replaces; it always
    /// compares version, total and number of corrections. So it overwrites no edit by hand.
    fn of(before: &Counter, after: &Counter) -> Self {
        // The version is always set, since a statement has to set something. The number of corrections is absent where it
        // is 0: in a statement with the condition `IS MISSING OR =0` an engine may not find the key.
        let corrections = |counter: &Counter| (counter.corrections > 0).then(|| number(counter.corrections));
        let mut changes = Self {
            written: vec![("version".into(), Some(number(after.version)))],
            compared: vec![("version".into(), Some(number(before.version)))],
        };
        changes.between("likes", Some(number(before.likes)), Some(number(after.likes)));
        changes.between("c", corrections(before), corrections(after));
        if before.gap != after.gap {
            changes.between("gap", before.gap.map(number), after.gap.map(number));
        }
        if before.doubt != after.doubt {
            changes.between("doubt", number_set(&before.doubt), number_set(&after.doubt));
        }
        let gone = before.parts.keys().filter(|shard| !after.parts.contains_key(shard));
        for shard in after.parts.keys().chain(gone) {
            let (stands, becomes) = (before.parts.get(shard), after.parts.get(shard));
            if stands != becomes {
                changes.between(part(*shard), stands.map(number), becomes.map(number));
            }
        }
        if before.updated_at != after.updated_at {
            changes.written.push(("updated_at".into(), Some(number(after.updated_at))));
        }
        changes
    }
}

/// Returns a name as a statement has it. The name of a shard's part is no keyword, and with quotation marks so many of
/// them would not fit.
fn quoted(name: &str) -> Cow<'_, str> {
    if digits(name).is_some() { Cow::Borrowed(name) } else { Cow::Owned(format!("\"{name}\"")) }
}

impl Update {
    /// Returns how many shards have another part afterwards.
    pub fn shards(&self) -> usize {
        let none = Counter::default();
        let (before, after) = (&self.before.as_ref().unwrap_or(&none).parts, &self.after.parts);
        let changed = after.iter().filter(|(shard, gained)| before.get(shard) != Some(gained)).count();
        changed + before.keys().filter(|shard| !after.contains_key(shard)).count()
    }

    /// Returns the update as a statement: an `INSERT` where the counter is absent, otherwise an `UPDATE`.
    pub(super) fn statement(&self, table: &str) -> BatchStatementRequest {
        let (text, parameters) = match &self.before {
            None => self.insert(table),
            Some(before) => self.update(table, before),
        };
        statement(text, parameters)
    }

    fn insert(&self, table: &str) -> (String, Vec<AttributeValue>) {
        let mut statement = format!("INSERT INTO \"{table}\" VALUE {{'post_id':?");
        let mut parameters = vec![text(self.counter.stored())];
        for (name, value) in encode(&self.after) {
            push(&mut statement, format_args!(",'{name}':?"));
            parameters.push(value);
        }
        statement.push('}');
        (statement, parameters)
    }

    fn update(&self, table: &str, before: &Counter) -> (String, Vec<AttributeValue>) {
        let Edit { written, compared } = Edit::of(before, &self.after);
        let mut statement = String::with_capacity(64 + 32 * compared.len());
        push(&mut statement, format_args!("UPDATE \"{table}\""));
        let mut parameters = Vec::with_capacity(written.len() + compared.len() + 1);
        for (name, value) in written {
            match &value {
                None => push(&mut statement, format_args!(" REMOVE {}", quoted(&name))),
                Some(_) => push(&mut statement, format_args!(" SET {}=?", quoted(&name))),
            }
            parameters.extend(value);
        }
        push(&mut statement, format_args!(" WHERE \"post_id\"=?"));
        parameters.push(text(self.counter.stored()));
        for (name, value) in compared {
            let is = if value.is_some() { "=?" } else { " IS MISSING" };
            push(&mut statement, format_args!(" AND {}{is}", quoted(&name)));
            parameters.extend(value);
        }
        (statement, parameters)
    }

    /// Returns the update as an expression and its condition.
    pub(super) fn expressions(&self, values: &mut Values) -> (String, String) {
        let Some(before) = &self.before else {
            let set = encode(&self.after).into_iter().map(|(name, value)| (name, Some(value)));
            return (values.update(set), "attribute_not_exists(#post_id)".to_owned());
        };
        let Edit { written, compared } = Edit::of(before, &self.after);
        let condition: Vec<String> = compared.into_iter().map(|(name, value)| values.same(&name, value)).collect();
        (values.update(written), condition.join(" AND "))
    }
}

fn push(text: &mut String, part: fmt::Arguments<'_>) {
    text.write_fmt(part).expect("a String takes everything");
}

/// Returns the name of the attribute with the part of a shard.
fn part(shard: Shard) -> String {
    format!("s{shard}")
}

/// Encodes a counter as attributes, without its key.
pub(in crate::dynamodb) fn encode(counter: &Counter) -> Vec<(Cow<'static, str>, AttributeValue)> {
    let Counter { likes, parts, version, corrections, gap, doubt, updated_at } = counter;
    let stated = [
        ("likes", Some(number(likes))),
        ("version", Some(number(version))),
        ("updated_at", Some(number(updated_at))),
        ("c", (*corrections > 0).then(|| number(corrections))),
        ("gap", gap.map(number)),
        ("doubt", number_set(doubt)),
    ];
    let stated = stated.into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
    stated.chain(parts.iter().map(|(shard, gained)| (part(*shard).into(), number(gained)))).collect()
}

/// Decodes a counter from an item. Skips attributes of other names. A number of corrections that is 0 has to be absent,
/// so that each counter is written in one way.
pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Counter> {
    let corrections = reader.get::<Option<_>>("c")?;
    if corrections == Some(0) {
        return Err(reader.malformed("c", "without corrections it has to be absent"));
    }
    let mut counter = Counter {
        likes: reader.get("likes")?,
        version: reader.get("version")?,
        corrections: corrections.unwrap_or_default(),
        gap: reader.get("gap")?,
        doubt: reader.get("doubt")?,
        updated_at: reader.get::<Option<_>>("updated_at")?.unwrap_or_default(),
        ..Counter::default()
    };
    for (name, value) in reader.item {
        let Some(digits) = digits(name) else { continue };
        let shard = digits.parse().ok().and_then(Shard::new);
        let shard = shard.ok_or_else(|| reader.malformed(name, format!("no counter has a shard {digits}")))?;
        counter.parts.insert(shard, i64::read(value).map_err(|why| reader.malformed(name, why))?);
    }
    Ok(counter)
}

/// Returns the digits after the `s` in the name of a shard's part. A number is written in one way only, without leading
/// zeros.
fn digits(name: &str) -> Option<&str> {
    let digits = name.strip_prefix('s')?;
    let canonical = digits == "0" || !digits.is_empty() && !digits.starts_with('0');
    (canonical && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
}

#[cfg(test)]
mod tests {
    use tally_core::changes::Place;
    use tally_core::fault::Fault;
    use tally_core::ids::PostId;
    use tally_core::time::UnixMillis;

    use super::super::super::item::{Item, flag, item};
    use super::*;

    fn read(mut attributes: Item) -> Outcome<Counter> {
        attributes.insert("post_id".to_owned(), text("p"));
        decode(&Reader { table: "like_counts", item: &attributes })
    }

    #[test]
    fn an_attribute_that_cannot_be_read_poisons_the_item_and_is_named() {
        let broken = [
            ("likes", text("5")),
            ("likes", number("9223372036854775808")),
            ("version", number(-1)),
            ("s1", number("1.5")),
            ("s1", text("1")),
            ("s256", number(1)),
            ("s99999", number(1)),
            ("c", number(-1)),
            ("c", number(0)),
            ("gap", flag(true)),
            ("doubt", number(1)),
            ("doubt", AttributeValue::Ns(vec!["256".into()])),
            ("updated_at", text("now")),
        ];
        for (name, value) in broken {
            let mut attributes = item! { "likes": number(1), "version": number(1) };
            attributes.insert(name.into(), value);
            let Err(Fault::Poison(message)) = read(attributes) else { panic!("{name}") };
            assert!(message.starts_with(&format!("table like_counts, item post_id \"p\": {name}: ")), "{message}");
        }
        for absent in ["likes", "version"] {
            let mut attributes = item! { "likes": number(1), "version": number(1) };
            attributes.remove(absent);
            let Err(Fault::Poison(message)) = read(attributes) else { panic!("{absent}") };
            assert!(message.ends_with(&format!("{absent}: missing")), "{message}");
        }
    }

    #[test]
    fn attributes_of_other_names_are_passed_over() {
        let mut attributes = item! { "likes": number(1), "version": number(1), "s": text("x"), "sx1": text("x") };
        attributes.extend(item! { "s01": text("x"), "s-1": text("x"), "future": flag(true) });
        assert_eq!(read(attributes).map(|counter| counter.parts.len()), Ok(0));
    }

    fn shard(k: u16) -> Shard {
        Shard::new(k).unwrap()
    }

    fn update(before: Option<Counter>, after: Counter) -> Update {
        Update { counter: CounterId::likes(PostId::new("p").unwrap()), before, after }
    }

    #[test]
    fn the_widest_update_fits_into_a_statement() {
        const ROOM: usize = 8192;
        let after = Counter {
            likes: 1,
            parts: (0..256).map(|k| (shard(k), 1)).collect(),
            version: Place::from_stored(1),
            corrections: 1,
            gap: Some(Place::from_stored(1)),
            doubt: (0..256).map(shard).collect(),
            updated_at: UnixMillis(1),
        };
        let table = format!("{}like_counts", "x".repeat(32));
        let update = update(Some(Counter::default()), after.clone());
        let length = update.statement(&table).statement().len();
        assert_eq!(update.shards(), 256);
        assert!(length <= ROOM, "{length} characters");
        let back = Update { before: Some(after), after: Counter::default(), ..update };
        let length = back.statement(&table).statement().len();
        assert_eq!(back.shards(), 256);
        assert!(length <= ROOM, "{length} characters");
    }
}
