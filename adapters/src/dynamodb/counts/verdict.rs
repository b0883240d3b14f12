//! Corrections of a counter as conditional updates: what `Verdict::admitted_by` and `Verdict::apply` say, in the store's
//! words, a total set right, and a count marked as doubtful.

use aws_sdk_dynamodb::types::{AttributeValue, Update};
use tally_core::ids::Shard;
use tally_core::time::UnixMillis;
use tally_core::window::{Form, Verdict};

use super::super::expression::{Aliases, Names, Values};
use super::super::item::{Item, flag};
use super::super::names::counts::{LIKES, ROWS, SUSPECT, SWITCHES, UPDATED_AT, VERSION, WINDOW_ROWS, WINDOW_RUN};

/// The update of a verdict, under the token it takes.
pub(super) fn update(table: &str, key: Item, verdict: &Verdict) -> Update {
    let k = verdict.key.shard;
    let mut say = Aliases::default();
    let mut of_shard = |kind: &str| say.name(format!("{kind}{k}"));
    let (rows, run, at_marker, suspect) =
        (of_shard(ROWS), of_shard(WINDOW_RUN), of_shard(WINDOW_ROWS), of_shard(SUSPECT));
    let [likes, version] = say.names([LIKES, VERSION]);
    let (token, correction) = (say.text(verdict.run.to_string()), say.number(verdict.correction));
    let one = say.number(1);
    let (condition, also_removed) = match verdict.form {
        Form::Plain => (format!("attribute_not_exists({suspect})"), String::new()),
        Form::Suspect { switches } => {
            let seen = say.name(format!("{SWITCHES}{k}"));
            let stands = format!("{seen}={}", say.number(switches));
            let condition = if switches == 0 { format!("(attribute_not_exists({seen}) OR {stands})") } else { stands };
            (condition, format!(",{suspect}"))
        }
    };
    let change = format!("ADD {rows} {correction},{likes} {correction},{version} {one}");
    finish(
        table,
        key,
        say,
        format!("{change} REMOVE {run},{at_marker}{also_removed}"),
        format!("{run}={token} AND {condition}"),
    )
}

/// The update that sets the total to `sum`, if the counter still has `version`.
pub(super) fn mending(table: &str, key: Item, version: u64, sum: i64) -> Update {
    let mut say = Aliases::default();
    let [likes, at] = say.names([LIKES, VERSION]);
    let (sum, one) = (say.value(AttributeValue::N(sum.to_string())), say.number(1));
    let seen = say.number(version);
    finish(table, key, say, format!("SET {likes}={sum} ADD {at} {one}"), format!("{at}={seen}"))
}

/// The update that marks the count of shard `k` as one that may be wrong. It has no condition: each copy voids the verdicts
/// whose rows were read before it.
pub(super) fn suspicion(k: Shard, now: UnixMillis) -> (String, Option<Names>, Option<Values>) {
    let mut say = Aliases::default();
    let [likes, version, at] = say.names([LIKES, VERSION, UPDATED_AT]);
    let (suspect, switches) = (say.name(format!("{SUSPECT}{k}")), say.name(format!("{SWITCHES}{k}")));
    let (yes, now, none, one) = (say.value(flag(true)), say.number(now), say.number(0), say.number(1));
    let set = format!("SET {suspect}={yes},{at}={now},{likes}=if_not_exists({likes},{none})");
    let (names, values) = say.finish();
    (format!("{set} ADD {version} {one},{switches} {one}"), names, values)
}

fn finish(table: &str, key: Item, say: Aliases, update: String, condition: String) -> Update {
    let (names, values) = say.finish();
    Update::builder()
        .table_name(table)
        .set_key(Some(key))
        .update_expression(update)
        .condition_expression(condition)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .build()
        .expect("table, key and expression are set")
}
