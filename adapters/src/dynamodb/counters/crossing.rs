//! The update that reaches milestones: the counter and their records in one transaction, all or nothing.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update as UpdateItem};
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::milestone::Milestone;
use tally_core::ports::Outcome;

use super::super::expression::Aliases;
use super::super::fault::{Cancelled, Refused, cancelled, refused};
use super::super::names::COUNTS;
use super::super::recounts::milestone;
use super::{Counters, Update, key};

/// What became of an update with milestones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crossed {
    /// The counter is as the update says, and each milestone has its record.
    Stored,
    /// Nothing was written: the counter is another one than the update names, as in [`Written::Refused`](super::Written).
    Refused(Option<Counter>),
    /// Nothing was written: these thresholds have a record. The counter is written alone, or with the other records.
    Recorded(Vec<i64>),
}

impl Counters {
    /// How many shards an update with milestones may change: the condition has room for 4 KB and 300 operators.
    pub const SHARDS_CROSSED: usize = 100;

    /// Writes a counter and the records of the milestones that it reaches. Safe to repeat: what makes
    /// [`write`](Self::write) so, and a record is put only where there is none.
    ///
    /// # Errors
    /// [`Fault::Transient`]: it is not known whether it was carried out. [`Fault::Poison`] where the update changes more than
    /// [`Self::SHARDS_CROSSED`] shards: what lies before the first milestone is written by itself then.
    pub async fn cross(&self, update: &Update, reached: &[Milestone]) -> Outcome<Crossed> {
        if update.shards() > Self::SHARDS_CROSSED {
            let (shards, most) = (update.shards(), Self::SHARDS_CROSSED);
            let (table, counter) = (self.table(), &update.counter);
            let message =
                format!("{table}: an update of {counter} with milestones changes {shards} shards, {most} at most");
            return Err(Fault::Poison(message));
        }
        self.connection.watch.open_to(COUNTS)?;
        let recounts = &self.connection.tables.recounts;
        let put =
            |reached| TransactWriteItem::builder().put(milestone::put(recounts, &update.counter, reached)).build();
        let mut items = vec![TransactWriteItem::builder().update(self.conditional(update)).build()];
        items.extend(reached.iter().map(put));
        let sent = self.connection.client.transact_write_items().set_transact_items(Some(items)).send().await;
        match sent {
            Ok(_) => Ok(Crossed::Stored),
            Err(error) => self.not_crossed(reached, &error),
        }
    }

    fn conditional(&self, update: &Update) -> UpdateItem {
        let mut say = Aliases::default();
        let (expression, condition) = update.expressions(&mut say);
        let (names, values) = say.finish();
        UpdateItem::builder()
            .table_name(self.table())
            .set_key(Some(key(&update.counter.stored())))
            .update_expression(expression)
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table, key and expression are set")
    }

    /// Which condition did not hold; the counter's comes first.
    fn not_crossed(&self, reached: &[Milestone], error: &SdkError<TransactWriteItemsError>) -> Outcome<Crossed> {
        if let Some(TransactWriteItemsError::TransactionCanceledException(said)) = error.as_service_error()
            && let [update, puts @ ..] = said.cancellation_reasons()
        {
            if refused(update) == Refused::Condition {
                let stands = update.item().filter(|item| !item.is_empty()).map(|item| self.decoded(item));
                return Ok(Crossed::Refused(stands.transpose()?));
            }
            let recorded = reached.iter().zip(puts).filter(|(_, reason)| refused(reason) == Refused::Condition);
            let recorded: Vec<i64> = recorded.map(|(milestone, _)| milestone.n).collect();
            if !recorded.is_empty() {
                return Ok(Crossed::Recorded(recorded));
            }
        }
        match cancelled(self.table(), error) {
            Cancelled::Conflict(fault) | Cancelled::Fault(fault) => Err(fault),
            Cancelled::Condition => Err(Fault::Transient(format!("{}: a condition did not hold", self.table()))),
        }
    }
}
