//! The update by which a counter crosses thresholds: one transaction writes the counter and the records of its
//! milestones (who brought it to each threshold), all or nothing.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as Error;
use aws_sdk_dynamodb::types::{
    CancellationReason, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update as UpdateItem,
};
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::milestone::Milestone;
use tally_core::ports::Outcome;

use super::super::connection::COUNTS;
use super::super::fault::of_reasons;
use super::super::recounts::milestone;
use super::super::table::{Values, names};
use super::{Counters, Update, key};

/// The outcome of an update with milestones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crossed {
    /// The counter is as the update says, and each milestone has its record.
    Stored,
    /// Nothing was written: the counter is not as the update names it, as in [`Written::Refused`](super::Written).
    Refused(Option<Counter>),
    /// Nothing was written: these thresholds have a record already. The caller writes the counter alone, or with the
    /// other records.
    Recorded(Vec<i64>),
}

impl Counters {
    /// How many shards an update with milestones may change: a condition has room for 4 KB and 300 operators.
    pub const SHARDS_CROSSED: usize = 100;

    /// Writes a counter and the records of the milestones that it reaches. Safe to repeat for the reason that makes
    /// [`write`](Self::write) so; and a record is put only where there is none.
    ///
    /// # Errors
    /// [`Fault::Transient`]: it is not known whether it was carried out. [`Fault::Poison`] where the update changes
    /// more than [`Self::SHARDS_CROSSED`] shards: the caller then writes what comes before the first milestone by
    /// itself.
    pub async fn cross(&self, update: &Update, reached: &[Milestone]) -> Outcome<Crossed> {
        if update.shards() > Self::SHARDS_CROSSED {
            let (table, counter, shards) = (self.table().name, &update.counter, update.shards());
            let most = Self::SHARDS_CROSSED;
            let message =
                format!("{table}: an update of {counter} with milestones changes {shards} shards, {most} at most");
            return Err(Fault::Poison(message));
        }
        self.connection.watch.open_to(COUNTS)?;
        let recounts = self.connection.recounts().name;
        let put =
            |reached| TransactWriteItem::builder().put(milestone::put(recounts, &update.counter, reached)).build();
        let mut items = vec![TransactWriteItem::builder().update(self.conditional(update)).build()];
        items.extend(reached.iter().map(put));
        let sent = self.connection.client.transact_write_items().set_transact_items(Some(items)).send().await;
        match sent {
            Ok(_) => Ok(Crossed::Stored),
            Err(error) => match error.as_service_error() {
                Some(Error::TransactionCanceledException(said)) => {
                    let what = said.message().unwrap_or("transaction cancelled");
                    self.cancelled(reached, said.cancellation_reasons(), what)
                }
                _ => Err(self.table().fault(&error)),
            },
        }
    }

    fn conditional(&self, update: &Update) -> UpdateItem {
        let mut values = Values::default();
        let (expression, condition) = update.expressions(&mut values);
        UpdateItem::builder()
            .table_name(self.table().name)
            .set_key(Some(key(&update.counter.stored())))
            .set_expression_attribute_names(names(&[&expression, &condition]))
            .update_expression(expression)
            .condition_expression(condition)
            .set_expression_attribute_values(values.finish())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table, key and expression are set")
    }

    /// Finds the condition that did not hold; that of the counter comes first.
    fn cancelled(&self, reached: &[Milestone], reasons: &[CancellationReason], said: &str) -> Outcome<Crossed> {
        let refused = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
        if let Some(update) = reasons.first().filter(|update| refused(update)) {
            let stands = update.item().filter(|item| !item.is_empty()).map(|item| self.decoded(item));
            return Ok(Crossed::Refused(stands.transpose()?));
        }
        let puts = reached.iter().zip(reasons.iter().skip(1)).filter(|(_, reason)| refused(reason));
        let recorded: Vec<i64> = puts.map(|(milestone, _)| milestone.n).collect();
        if recorded.is_empty() {
            Err(of_reasons(self.table().name, reasons, said))
        } else {
            Ok(Crossed::Recorded(recorded))
        }
    }
}
