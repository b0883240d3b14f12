//! The one conditional update of a counter as expressions: what `Counter::refusal` and `Counter::updated` say, in the
//! store's words. No attribute of a counter is a reserved word, so each is named as it is: aliases would be written, sent and
//! read for nothing, once for every few likes.

use std::fmt;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::counter::{Feeder, Overflow, Touch, Update};
use tally_core::ids::Ordinal;
use tally_core::milestone::{Bound, Guard};

use super::super::expression::Aliases;
use super::super::names::counts::{
    FEEDER, FLOOR, LADDER, LIKES, RECORDED, ROWS, SUSPECT, SWITCHES, UPDATED_AT, VERSION, WATERMARK, WINDOW_ROWS,
    WINDOW_RUN,
};

/// A request's expressions with all they name.
#[derive(Debug)]
pub(super) struct Expressions {
    pub(super) update: String,
    pub(super) condition: String,
    /// `:0` and so on.
    pub(super) values: Vec<AttributeValue>,
}

/// Puts `update` into expressions. Both stay within the store's 4 KB for as many shards as one update may touch and up
/// to six ancestors beyond the floor.
pub(super) fn expressions(update: &Update) -> Result<Expressions, Overflow> {
    let total = update.total()?;
    let mut writer = Writer::new(update);
    writer.feeders(update);
    writer.guard(update);
    writer.watermark(update);
    update.touched.iter().for_each(|touch| writer.touch(touch));
    writer.totals(total);
    writer.prune(update);
    Ok(writer.finish())
}

/// Gathers the clauses of one update. Values asked for first have the shortest aliases, so whatever is written once per shard asks
/// early.
struct Writer {
    say: Aliases,
    /// `g`, as a value.
    shard: String,
    one: String,
    condition: Clauses,
    set: Clauses,
    add: Clauses,
    remove: Clauses,
}

impl Writer {
    fn new(update: &Update) -> Self {
        let mut say = Aliases::default();
        let (shard, one) = (say.number(update.shard), say.number(1));
        let (condition, set) = (Clauses::joined(" AND "), Clauses::joined(","));
        Self { say, shard, one, condition, set, add: Clauses::joined(","), remove: Clauses::joined(",") }
    }

    /// Nothing of the update is in the counter yet, and afterwards all of it is.
    fn watermark(&mut self, update: &Update) {
        let mark = format!("{WATERMARK}{}", update.shard);
        let (first, last) = (self.say.text(update.first.as_str()), self.say.text(update.last.as_str()));
        let (shard, at) = (&self.shard, self.say.number(update.at));
        self.condition.push(format_args!(
            "({mark}<{first} OR (attribute_not_exists({mark}) AND (attribute_not_exists({FLOOR}) OR {FLOOR}<{shard})))"
        ));
        self.set.push(format_args!("{mark}={last},{UPDATED_AT}={at}"));
        if let Some(prune) = &update.prune {
            let raised = self.say.number(prune.floor);
            self.condition.push(format_args!("(attribute_not_exists({FLOOR}) OR {FLOOR}<={raised})"));
            self.set.push(format_args!("{FLOOR}={raised}"));
        }
    }

    /// Where the total has to stand for no threshold to be passed unrecorded, and what is recorded.
    fn guard(&mut self, update: &Update) {
        let Some(Guard { knows, bound }) = &update.guard else { return };
        if *knows == 0 {
            self.condition.push(format_args!("attribute_not_exists({LADDER})"));
        } else {
            let known = self.say.number(knows);
            self.condition.push(format_args!("(attribute_not_exists({LADDER}) OR {LADDER}<={known})"));
            self.set.push(format_args!("{LADDER}={known}"));
        }
        match bound {
            Bound::Free => {}
            Bound::Below(bound) => {
                // A counter that is not there stands at 0.
                let absent = if *bound > 0 { format!("attribute_not_exists({LIKES}) OR ") } else { String::new() };
                let bound = self.say.number(bound);
                self.condition.push(format_args!("({absent}{LIKES}<{bound})"));
            }
            Bound::Crossing { version: 0, .. } => {
                self.condition.push(format_args!("attribute_not_exists({VERSION})"));
            }
            Bound::Crossing { version: seen, .. } => {
                let seen = self.say.number(seen);
                self.condition.push(format_args!("{VERSION}={seen}"));
            }
        }
        if let Bound::Crossing { through, .. } = bound {
            let through = self.say.number(through);
            self.set.push(format_args!("{RECORDED}={through}"));
        }
    }

    /// Who may have fed each shard before, and who has now.
    fn feeders(&mut self, update: &Update) {
        let mut kin = None;
        for touch in &update.touched {
            let feeder = format!("{FEEDER}{}", touch.shard);
            let admitted = match touch.feeder {
                Feeder::Usual => kin.get_or_insert_with(|| self.kin(update)).admit(&feeder),
                Feeder::Inherit { from } | Feeder::Contest { from } => format!("{feeder}={}", self.say.number(from)),
            };
            self.condition.push(format_args!("{admitted}"));
            self.set.push(format_args!("{feeder}={}", self.shard));
        }
    }

    /// The feeders that hand over without contest. An ancestor at or below the floor is covered by it.
    fn kin(&mut self, update: &Update) -> Kin {
        let through = update.closed_through;
        let listed = |ancestor: &&Ordinal| **ancestor != update.shard && through.is_none_or(|floor| **ancestor > floor);
        let mut kin = Clauses::joined(",");
        kin.push(format_args!("{}", self.shard));
        for ancestor in update.ancestors.iter().filter(listed) {
            kin.push(format_args!("{}", self.say.number(ancestor)));
        }
        Kin { listed: kin.text, through: through.map(|through| self.say.number(through)) }
    }

    /// What one shard gains.
    fn touch(&mut self, touch: &Touch) {
        let k = touch.shard;
        let rows = format!("{ROWS}{k}");
        let delta = self.say.number(touch.delta);
        self.add.push(format_args!("{rows} {delta}"));
        if let Some(run) = touch.window {
            let (window_run, window_rows) = (format!("{WINDOW_RUN}{k}"), format!("{WINDOW_ROWS}{k}"));
            let (run, none) = (self.say.text(run.to_string()), self.say.number(0));
            self.set.push(format_args!("{window_run}={run},{window_rows}=if_not_exists({rows},{none})"));
        }
        if touch.makes_suspect() {
            let (switches, suspect) = (format!("{SWITCHES}{k}"), format!("{SUSPECT}{k}"));
            let yes = self.say.value(AttributeValue::Bool(true));
            self.add.push(format_args!("{switches} {}", self.one));
            self.set.push(format_args!("{suspect}={yes}"));
        }
    }

    fn totals(&mut self, total: i64) {
        let total = self.say.number(total);
        self.add.push(format_args!("{LIKES} {total},{VERSION} {}", self.one));
    }

    /// The watermarks that the raised floor stands for from now on.
    fn prune(&mut self, update: &Update) {
        for shard in update.prune.iter().flat_map(|prune| &prune.finished) {
            let mark = format!("{WATERMARK}{shard}");
            self.remove.push(format_args!("{mark}"));
        }
    }

    fn finish(self) -> Expressions {
        let mut update = format!("SET {} ADD {}", self.set.text, self.add.text);
        if !self.remove.text.is_empty() {
            update = format!("{update} REMOVE {}", self.remove.text);
        }
        Expressions { update, condition: self.condition.text, values: self.say.into_values() }
    }
}

/// What `Feeder::Usual` admits besides an absent feeder: a list of values, and everything up to one.
struct Kin {
    listed: String,
    through: Option<String>,
}

impl Kin {
    fn admit(&self, feeder: &str) -> String {
        let floored = self.through.as_ref().map(|through| format!(" OR {feeder}<={through}")).unwrap_or_default();
        format!("(attribute_not_exists({feeder}) OR {feeder} IN ({}){floored})", self.listed)
    }
}

/// Parts of an expression, joined.
struct Clauses {
    joint: &'static str,
    text: String,
}

impl Clauses {
    fn joined(joint: &'static str) -> Self {
        Self { joint, text: String::new() }
    }

    fn push(&mut self, clause: fmt::Arguments<'_>) {
        if !self.text.is_empty() {
            self.text.push_str(self.joint);
        }
        fmt::write(&mut self.text, clause).expect("a String takes everything");
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{Sequence, Shard};
    use tally_core::tally::MAX_TOUCHED;
    use tally_core::time::UnixMillis;
    use tally_core::watermark::Prune;

    use super::*;

    const ROOM: usize = 4096;
    /// What the store allows in one expression.
    const OPERATORS: usize = 300;

    /// Each shard is marked as suspect on the way.
    fn widest(feeder: Feeder) -> Update {
        let sequence: Sequence = "9".repeat(Sequence::DIGITS).parse().unwrap();
        let shard = |k: usize| Shard::new(u16::try_from(255 - k).unwrap()).unwrap();
        let touch = |k| Touch { shard: shard(k), delta: -1_000_000, feeder, window: None, doubt: true };
        Update {
            shard: Ordinal(99_999),
            first: sequence,
            last: sequence,
            at: UnixMillis::MAX,
            touched: (0..MAX_TOUCHED).map(touch).collect(),
            ancestors: (99_000..99_006).map(Ordinal).collect(),
            closed_through: Some(Ordinal(98_000)),
            prune: Some(Prune { floor: Ordinal(98_000), finished: (97_800..98_000).map(Ordinal).collect() }),
            guard: Some(Guard { knows: 16, bound: Bound::Below(i64::MAX) }),
        }
    }

    fn operators(expression: &str) -> usize {
        let signs = expression.matches(['=', '<', '+']).count() - expression.matches("<=").count();
        let words = [" OR ", " AND ", " IN ", "attribute_not_exists", "if_not_exists"];
        signs + words.iter().map(|word| expression.matches(word).count()).sum::<usize>()
    }

    #[test]
    fn the_widest_update_fits_into_its_expressions() {
        let far = Ordinal(98_500);
        for feeder in [Feeder::Usual, Feeder::Inherit { from: far }, Feeder::Contest { from: far }] {
            let written = expressions(&widest(feeder)).unwrap();
            assert!(written.update.len() <= ROOM, "{} bytes of update, {feeder:?}", written.update.len());
            assert!(written.condition.len() <= ROOM, "{} bytes of condition, {feeder:?}", written.condition.len());
            let operators = operators(&written.condition);
            assert!(operators <= OPERATORS, "{operators} operators, {feeder:?}");
        }
    }

    #[test]
    fn every_alias_is_used_and_every_one_used_is_there() {
        let mut narrow = widest(Feeder::Contest { from: Ordinal(1) });
        narrow.touched.truncate(1);
        (narrow.prune, narrow.closed_through) = (None, None);
        for update in [widest(Feeder::Usual), narrow] {
            let written = expressions(&update).unwrap();
            let text = format!("{} {}", written.update, written.condition);
            let is_part = |c: char| c.is_ascii_digit() || c == ':';
            let used: std::collections::BTreeSet<&str> =
                text.split(|c| !is_part(c)).filter(|part| part.starts_with(':')).collect();
            let given: Vec<String> = (0..written.values.len()).map(|nth| format!(":{nth}")).collect();
            assert_eq!(used, given.iter().map(String::as_str).collect());
        }
    }

    #[test]
    fn a_sum_beyond_64_bits_is_never_sent() {
        let mut update = widest(Feeder::Usual);
        update.touched.iter_mut().for_each(|touch| touch.delta = i64::MAX);
        assert_eq!(expressions(&update).unwrap_err(), Overflow);
    }
}
