//! Statements of `BatchExecuteStatement`, a request of many conditional writes, and their outcomes, one for each. Rows,
//! counters and cells (the row of a sum that one Kafka partition adds to) are written by them.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::batch_execute_statement::{BatchExecuteStatementError, BatchExecuteStatementOutput};
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum as Code, BatchStatementRequest, BatchStatementResponse,
    ReturnValuesOnConditionCheckFailure,
};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::fault::of_statement;
use super::item::Item;
use super::table::Table;

/// The outcome of one update of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// The item is as the update says.
    Stored,
    /// The item is not as the update names it. It is as this says; `None` where it is absent or has to be read. An
    /// earlier copy of the update may have been carried out.
    Refused(Option<T>),
    /// [`Fault::Transient`]: it is not known whether it was carried out. Any other fault: it was not.
    Failed(Fault),
}

/// Why a statement of a batch was not carried out.
pub(super) enum Refusal {
    /// An `INSERT` found an item.
    Duplicate,
    /// The condition of an `UPDATE` was false for this item, or there was no item.
    Condition(Option<Item>),
    Fault(Fault),
}

impl<T> Written<T> {
    /// Converts the outcome of an update; `decode` reads the item.
    pub(super) fn of(sent: Result<(), Refusal>, decode: impl FnOnce(&Item) -> Outcome<T>) -> Self {
        match sent {
            Ok(()) => Self::Stored,
            Err(Refusal::Duplicate | Refusal::Condition(None)) => Self::Refused(None),
            Err(Refusal::Condition(Some(found))) => {
                decode(&found).map_or_else(Self::Failed, |stands| Self::Refused(Some(stands)))
            }
            Err(Refusal::Fault(fault)) => Self::Failed(fault),
        }
    }
}

/// Builds a statement of a batch. If its condition is false, the answer shows the item that is there.
pub(super) fn statement(text: impl Into<String>, parameters: Vec<AttributeValue>) -> BatchStatementRequest {
    BatchStatementRequest::builder()
        .statement(text)
        .set_parameters(Some(parameters))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .expect("the statement is set")
}

impl Table<'_> {
    /// Returns the outcome of each of the `asked` statements of a request.
    ///
    /// # Errors
    /// The request was refused as a whole, or it is not known what became of any statement.
    pub(super) fn outcomes(
        self,
        asked: usize,
        sent: Result<BatchExecuteStatementOutput, SdkError<BatchExecuteStatementError>>,
    ) -> Outcome<Vec<Result<(), Refusal>>> {
        let outcomes = sent.map_err(|error| self.fault(&error))?.responses.unwrap_or_default();
        if outcomes.len() != asked {
            let answered = outcomes.len();
            return Err(Fault::Transient(format!("{}: {answered} answers to {asked} statements", self.name)));
        }
        let outcome = |outcome: BatchStatementResponse| {
            let Some(error) = outcome.error else { return Ok(()) };
            Err(match error.code() {
                Some(Code::DuplicateItem) => Refusal::Duplicate,
                Some(Code::ConditionalCheckFailed) => Refusal::Condition(error.item.filter(|item| !item.is_empty())),
                _ => Refusal::Fault(of_statement(self.name, &error)),
            })
        };
        Ok(outcomes.into_iter().map(outcome).collect())
    }
}
