//! Statements of `BatchExecuteStatement`, each with an outcome of its own.

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

/// What became of one update of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// The item is as the update says.
    Stored,
    /// The item is another one than the update names: as it is now, or `None` where it is absent or has to be read.
    /// A copy of the update may have been carried out before.
    Refused(Option<T>),
    /// [`Fault::Transient`]: it is not known whether it was carried out. Any other fault: it was not.
    Failed(Fault),
}

/// Why a statement of a batch was not carried out.
pub(super) enum Refusal {
    /// An `INSERT` found an item.
    Duplicate,
    /// The condition of an `UPDATE` was false of this item, or there was none.
    Condition(Option<Item>),
    Fault(Fault),
}

impl<T> Written<T> {
    /// What became of an update whose item is read by `decode`.
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

/// A statement of a batch. One whose condition is false shows the item that stands there.
pub(super) fn statement(text: impl Into<String>, parameters: Vec<AttributeValue>) -> BatchStatementRequest {
    BatchStatementRequest::builder()
        .statement(text)
        .set_parameters(Some(parameters))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .expect("the statement is set")
}

impl Table<'_> {
    /// What became of each of so many statements of a request.
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
