//! What an update changes in an item, as a statement of its own and as part of a transaction.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest};
use tally_core::fold::Counter;
use tally_core::ids::CounterId;

use super::super::item::{number, number_set, text};
use super::super::statement::statement;
use super::super::table::Values;
use super::item::{encode, part};

/// A counter goes from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Which.
    pub counter: CounterId,
    /// As it was read or written last; `None` where it was absent.
    pub before: Option<Counter>,
    /// As it will be.
    pub after: Counter,
}

/// What an update does to one attribute.
struct Change {
    name: Cow<'static, str>,
    stands: Stands,
    becomes: Becomes,
}

/// What an attribute has to be before.
enum Stands {
    Is(AttributeValue),
    Missing,
    Anything,
}

enum Becomes {
    Same,
    Value(AttributeValue),
    Nothing,
}

impl Change {
    /// An attribute that has one value or none before, and another one or none after.
    fn between(
        name: impl Into<Cow<'static, str>>,
        before: Option<AttributeValue>,
        after: Option<AttributeValue>,
    ) -> Self {
        Self {
            name: name.into(),
            stands: before.map_or(Stands::Missing, Stands::Is),
            becomes: after.map_or(Becomes::Nothing, Becomes::Value),
        }
    }

    /// A number that is compared, whether or not it changes.
    fn compared<T: PartialEq + fmt::Display>(name: &'static str, before: &T, after: &T) -> Self {
        let becomes = if before == after { Becomes::Same } else { Becomes::Value(number(after)) };
        Self { name: name.into(), stands: Stands::Is(number(before)), becomes }
    }

    /// The name as a statement has it. A part's is no keyword, and there are so many of them that quotation marks would not
    /// fit.
    fn quoted(&self) -> Cow<'_, str> {
        let digits = self.name.strip_prefix('s').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        if digits.is_some() { Cow::Borrowed(&self.name) } else { Cow::Owned(format!("\"{}\"", self.name)) }
    }
}

/// The changes of an item that is there. Only what differs is set, and what is set is compared with what it replaces; version,
/// total and number of corrections are always compared. So an edit by hand is met, and not overwritten.
fn changes(before: &Counter, after: &Counter) -> Vec<Change> {
    let mut changes = Vec::with_capacity(8);
    // Always set: a statement needs something to do.
    changes.push(Change::between("version", Some(number(before.version)), Some(number(after.version))));
    changes.push(Change::compared("likes", &before.likes, &after.likes));
    // Absent where there are none: `IS MISSING OR =0` is a condition in whose statement an engine may not find the key.
    let corrections = |counter: &Counter| (counter.corrections > 0).then(|| number(counter.corrections));
    let mut corrected = Change::between("c", corrections(before), corrections(after));
    if before.corrections == after.corrections {
        corrected.becomes = Becomes::Same;
    }
    changes.push(corrected);
    if before.gap != after.gap {
        changes.push(Change::between("gap", before.gap.map(number), after.gap.map(number)));
    }
    if before.doubt != after.doubt {
        changes.push(Change::between("doubt", number_set(&before.doubt), number_set(&after.doubt)));
    }
    for (shard, gained) in &after.parts {
        let stands = before.parts.get(shard);
        if stands != Some(gained) {
            changes.push(Change::between(part(*shard), stands.map(number), Some(number(gained))));
        }
    }
    for (shard, gone) in before.parts.iter().filter(|(shard, _)| !after.parts.contains_key(shard)) {
        changes.push(Change::between(part(*shard), Some(number(gone)), None));
    }
    if before.updated_at != after.updated_at {
        let becomes = Becomes::Value(number(after.updated_at));
        changes.push(Change { name: "updated_at".into(), stands: Stands::Anything, becomes });
    }
    changes
}

impl Update {
    /// How many shards have another part afterwards.
    pub fn shards(&self) -> usize {
        let none = Counter::default();
        let (before, after) = (&self.before.as_ref().unwrap_or(&none).parts, &self.after.parts);
        let changed = after.iter().filter(|(shard, gained)| before.get(shard) != Some(gained)).count();
        changed + before.keys().filter(|shard| !after.contains_key(shard)).count()
    }

    /// The update as a statement: an `INSERT` where the counter is absent, otherwise an `UPDATE`.
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
        let changes = changes(before, &self.after);
        let mut statement = String::with_capacity(64 + 32 * changes.len());
        push(&mut statement, format_args!("UPDATE \"{table}\""));
        let mut parameters = Vec::with_capacity(2 * changes.len() + 1);
        for change in &changes {
            match &change.becomes {
                Becomes::Same => {}
                Becomes::Nothing => push(&mut statement, format_args!(" REMOVE {}", change.quoted())),
                Becomes::Value(value) => {
                    push(&mut statement, format_args!(" SET {}=?", change.quoted()));
                    parameters.push(value.clone());
                }
            }
        }
        push(&mut statement, format_args!(" WHERE \"post_id\"=?"));
        parameters.push(text(self.counter.stored()));
        for change in changes {
            let name = change.quoted();
            match &change.stands {
                Stands::Anything => {}
                Stands::Missing => push(&mut statement, format_args!(" AND {name} IS MISSING")),
                Stands::Is(value) => {
                    push(&mut statement, format_args!(" AND {name}=?"));
                    parameters.push(value.clone());
                }
            }
        }
        (statement, parameters)
    }

    /// The update as an expression and its condition.
    pub(super) fn expressions(&self, values: &mut Values) -> (String, String) {
        let (changes, mut condition) = match &self.before {
            Some(before) => (changes(before, &self.after), Vec::new()),
            None => {
                let set = encode(&self.after).into_iter();
                let set =
                    set.map(|(name, value)| Change { name, stands: Stands::Anything, becomes: Becomes::Value(value) });
                (set.collect(), vec!["attribute_not_exists(#post_id)".to_owned()])
            }
        };
        let (mut set, mut removed) = (Vec::new(), Vec::new());
        for Change { name, stands, becomes } in changes {
            match becomes {
                Becomes::Same => {}
                Becomes::Nothing => removed.push(format!("#{name}")),
                Becomes::Value(value) => set.push(format!("#{name}={}", values.add(value))),
            }
            match stands {
                Stands::Anything => {}
                Stands::Missing => condition.push(values.same(&name, None)),
                Stands::Is(value) => condition.push(values.same(&name, Some(value))),
            }
        }
        let remove = if removed.is_empty() { "" } else { " REMOVE " };
        (format!("SET {}{remove}{}", set.join(","), removed.join(",")), condition.join(" AND "))
    }
}

fn push(text: &mut String, part: fmt::Arguments<'_>) {
    text.write_fmt(part).expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use tally_core::changes::Place;
    use tally_core::ids::{PostId, Shard};
    use tally_core::time::UnixMillis;

    use super::*;

    fn shard(k: u16) -> Shard {
        Shard::new(k).unwrap()
    }

    fn update(before: Option<Counter>, after: Counter) -> Update {
        Update { counter: CounterId::likes(PostId::new("p").unwrap()), before, after }
    }

    fn said(update: &Update) -> (String, String) {
        let statement = update.statement("like_counts");
        let parameters = statement.parameters().iter().map(|value| match value {
            AttributeValue::S(text) => text.clone(),
            AttributeValue::N(digits) => digits.clone(),
            AttributeValue::Ns(numbers) => format!("<<{}>>", numbers.join(",")),
            other => panic!("{other:?}"),
        });
        (statement.statement().to_owned(), parameters.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn an_absent_counter_is_inserted_with_what_it_has() {
        let after =
            Counter { likes: 5, version: Place::from_stored(9), updated_at: UnixMillis(77), ..Counter::default() };
        let after = Counter { parts: [(shard(3), 5)].into(), ..after };
        let (statement, parameters) = said(&update(None, after.clone()));
        assert_eq!(
            statement,
            r#"INSERT INTO "like_counts" VALUE {'post_id':?,'likes':?,'version':?,'updated_at':?,'s3':?}"#
        );
        assert_eq!(parameters, "p 5 9 77 5");
        let doubt = [shard(0), shard(3)].into();
        let after = Counter { corrections: 1, gap: Some(Place::from_stored(8)), doubt, ..after };
        let (statement, parameters) = said(&update(None, after));
        assert!(statement.ends_with("'updated_at':?,'c':?,'gap':?,'doubt':?,'s3':?}"), "{statement}");
        assert_eq!(parameters, "p 5 9 77 1 8 <<0,3>> 5");
    }

    #[test]
    fn an_update_sets_what_differs_and_compares_what_it_sets_with_what_it_replaces() {
        let before =
            Counter { likes: 5, version: Place::from_stored(9), updated_at: UnixMillis(77), ..Counter::default() };
        let before = Counter { parts: [(shard(3), 5), (shard(4), 0)].into(), ..before };
        let mut after = before.clone();
        (after.likes, after.version, after.updated_at) = (7, Place::from_stored(11), UnixMillis(78));
        after.parts = [(shard(3), 6), (shard(4), 0), (shard(12), 1)].into();
        let (statement, parameters) = said(&update(Some(before.clone()), after));
        let set = r#"UPDATE "like_counts" SET "version"=? SET "likes"=? SET s3=? SET s12=? SET "updated_at"=?"#;
        let condition =
            r#" WHERE "post_id"=? AND "version"=? AND "likes"=? AND "c" IS MISSING AND s3=? AND s12 IS MISSING"#;
        assert_eq!(statement, format!("{set}{condition}"));
        assert_eq!(parameters, "11 7 6 1 78 p 9 5 5");

        let doubted = Counter { corrections: 2, gap: Some(Place::from_stored(8)), doubt: [shard(4)].into(), ..before };
        let mut certain =
            Counter { corrections: 3, doubt: [].into(), version: Place::from_stored(10), ..doubted.clone() };
        certain.parts.remove(&shard(4));
        let (statement, parameters) = said(&update(Some(doubted), certain));
        let set = r#"UPDATE "like_counts" SET "version"=? SET "c"=? REMOVE "doubt" REMOVE s4"#;
        let condition = r#" WHERE "post_id"=? AND "version"=? AND "likes"=? AND "c"=? AND "doubt"=? AND s4=?"#;
        assert_eq!(statement, format!("{set}{condition}"));
        assert_eq!(parameters, "10 3 p 9 5 2 <<4>> 0");
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
