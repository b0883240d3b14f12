//! The update that reaches thresholds: counter and records in one transaction, all or nothing.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use tally_core::fault::Fault;
use tally_core::fence::Refused;
use tally_core::ids::CounterId;
use tally_core::milestone::Milestone;
use tally_core::ports::{Applied, Counts as _, Outcome};

use super::super::expression::by_alias;
use super::super::fault::{Cancelled, cancelled, refused};
use super::super::recounts::milestone;
use super::update::Expressions;
use super::{Counts, key};

impl Counts {
    /// Safe to repeat, by the SDK too: what is safe of the update alone is safe of it here, and each record is put where
    /// there is none.
    pub(super) async fn cross(&self, id: &CounterId, request: Expressions, reached: &[Milestone]) -> Outcome<Applied> {
        let update = Update::builder()
            .table_name(self.table())
            .set_key(Some(key(id)))
            .update_expression(request.update)
            .condition_expression(request.condition)
            .set_expression_attribute_values(Some(by_alias(request.values)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table, key and expression are set");
        let recounts = &self.connection.tables.recounts;
        let put = |reached| TransactWriteItem::builder().put(milestone::put(recounts, id, reached)).build();
        let mut items = vec![TransactWriteItem::builder().update(update).build()];
        items.extend(reached.iter().map(put));
        let sent = self.connection.client.transact_write_items().set_transact_items(Some(items)).send().await;
        match sent {
            // A transaction shows nothing of what it has written.
            Ok(_) => {
                let counter = self.counter(id).await?;
                let gone = || Fault::Transient(format!("{}: {id} is gone after its update", self.table()));
                counter.map(Applied::Taken).ok_or_else(gone)
            }
            Err(error) => self.not_crossed(reached, &error),
        }
    }

    /// The counter that refused, or the records that stand already, from the reply itself.
    fn not_crossed(&self, reached: &[Milestone], error: &SdkError<TransactWriteItemsError>) -> Outcome<Applied> {
        if let Some(TransactWriteItemsError::TransactionCanceledException(said)) = error.as_service_error()
            && let [update, puts @ ..] = said.cancellation_reasons()
        {
            if refused(update) == Refused::Condition {
                let counter = update.item().filter(|item| !item.is_empty()).map(|item| self.decoded(item));
                return Ok(Applied::Refused(counter.transpose()?));
            }
            let stands = reached.iter().zip(puts).filter(|(_, reason)| refused(reason) == Refused::Condition);
            let standing: Vec<i64> = stands.map(|(milestone, _)| milestone.n).collect();
            if !standing.is_empty() {
                return Ok(Applied::Standing(standing));
            }
        }
        match cancelled(self.table(), error) {
            Cancelled::Conflict(fault) | Cancelled::Fault(fault) => Err(fault),
            Cancelled::Condition => Err(Fault::Transient(format!("{}: a condition did not hold", self.table()))),
        }
    }
}
