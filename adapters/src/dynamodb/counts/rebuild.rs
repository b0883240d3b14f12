//! Counters written anew from their rows, while no row changes. Everything that a stream has said so far is done with then: a
//! floor stands in the place of all watermarks, and a worker that is late finds itself finished.

use tally_core::ids::{CounterId, Ordinal, RowKey};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::fault::{fault, unless_refused};
use super::super::item::{flag, item, number, text};
use super::super::names::counts;
use super::{Counts, key};

/// What counters are written anew with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anew {
    /// No stream shard up to here ever changes them again.
    pub floor: Ordinal,
    /// Above every version that a counter had, so that no older value is kept anywhere.
    pub version: u64,
    pub at: UnixMillis,
}

impl Counts {
    /// Puts a counter of nothing in the place of one with a lower floor, with what says which thresholds were reached: a second
    /// first would be recorded without it. No other process changes counters meanwhile. Safe to repeat: the floor that it sets
    /// is the one that its condition wants not to be there.
    ///
    /// # Errors
    /// The store takes no write.
    pub async fn clear(&self, id: &CounterId, anew: &Anew) -> Outcome<()> {
        let table = &self.connection.tables.counts;
        let mut say = Aliases::default();
        let (floor, ours) = (say.name(counts::FLOOR), say.number(anew.floor));
        let (names, values) = say.finish();
        let get = self.connection.client.get_item().table_name(table).set_key(Some(key(id))).consistent_read(true);
        let stands = get.send().await.map_err(|error| fault(table, &error))?.item.unwrap_or_default();
        let reached = [counts::RECORDED, counts::LADDER].map(|name| (name, stands.get(name).cloned()));
        let reached = reached.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let mut empty = item([
            (counts::POST_ID, text(id.stored())),
            (counts::LIKES, number(0)),
            (counts::VERSION, number(anew.version)),
            (counts::UPDATED_AT, number(anew.at)),
            (counts::FLOOR, number(anew.floor)),
        ]);
        empty.extend(reached.map(|(name, value)| (name.to_owned(), value)));
        let put = self.connection.client.put_item().table_name(table).set_item(Some(empty));
        let put = put.condition_expression(format!("attribute_not_exists({floor}) OR {floor}<{ours}"));
        let sent = put.set_expression_attribute_names(names).set_expression_attribute_values(values).send().await;
        unless_refused(table, sent).map(|_| ())
    }

    /// Writes what the rows of `row_key` weigh into its counter, which may be in doubt; creates it. `false` where its floor is lower:
    /// it has to be [cleared](Self::clear) first. Safe to repeat: it writes the same.
    ///
    /// # Errors
    /// The store takes no write.
    pub async fn set_rows(&self, row_key: &RowKey, weight: i64, doubt: bool, anew: &Anew) -> Outcome<bool> {
        let (table, k) = (&self.connection.tables.counts, row_key.shard);
        let mut say = Aliases::default();
        let [id, likes, version, at, floor] =
            say.names([counts::POST_ID, counts::LIKES, counts::VERSION, counts::UPDATED_AT, counts::FLOOR]);
        let mut of_shard = |kind: &str| say.name(format!("{kind}{k}"));
        let (rows, feeder) = (of_shard(counts::ROWS), of_shard(counts::FEEDER));
        let (run, at_marker) = (of_shard(counts::WINDOW_RUN), of_shard(counts::WINDOW_ROWS));
        let (suspect, switches) = (of_shard(counts::SUSPECT), of_shard(counts::SWITCHES));
        let (weight, base, now, least) =
            (say.number(weight), say.number(anew.version), say.number(anew.at), say.number(anew.floor));
        let none = say.number(0);
        let always = format!(
            "SET {rows}={weight},{version}={base},{at}={now},{likes}=if_not_exists({likes},{none}),{floor}=if_not_exists({floor},{least})"
        );
        let update = if doubt {
            let (yes, one) = (say.value(flag(true)), say.number(1));
            format!("{always},{suspect}={yes},{switches}={one} REMOVE {feeder},{run},{at_marker}")
        } else {
            format!("{always} REMOVE {feeder},{run},{at_marker},{suspect},{switches}")
        };
        let (names, values) = say.finish();
        let sent = self
            .connection
            .client
            .update_item()
            .table_name(table)
            .set_key(Some(key(&row_key.counter)))
            .update_expression(update)
            .condition_expression(format!("attribute_not_exists({id}) OR {floor}>={least}"))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .send()
            .await;
        Ok(unless_refused(table, sent)?.is_some())
    }

    /// Sets the total of a counter that still has `version`; `false` where it has another. Safe to repeat: it moves the version.
    ///
    /// # Errors
    /// The store takes no write.
    pub async fn set_total(&self, id: &CounterId, version: u64, sum: i64) -> Outcome<bool> {
        let table = &self.connection.tables.counts;
        let mut say = Aliases::default();
        let [likes, at] = say.names([counts::LIKES, counts::VERSION]);
        let (sum, one, seen) = (say.number(sum), say.number(1), say.number(version));
        let (names, values) = say.finish();
        let sent = self
            .connection
            .client
            .update_item()
            .table_name(table)
            .set_key(Some(key(id)))
            .update_expression(format!("SET {likes}={sum} ADD {at} {one}"))
            .condition_expression(format!("{at}={seen}"))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .send()
            .await;
        Ok(unless_refused(table, sent)?.is_some())
    }
}
