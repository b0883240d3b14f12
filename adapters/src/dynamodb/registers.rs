//! The rows of `likes` as registers: each carries the version of the event that it comes from, and a write replaces an older one.
//!
//! | attribute | |
//! |---|---|
//! | `pk`, `user_id` | the key: row key and member, or row key and [cell](cells) |
//! | `post_id` | what is liked |
//! | `v` | the [`Version`] of the event |
//! | `liked_at`, `region` | of a like |
//! | `gone` | of a tombstone: when the store deletes it, in seconds |
//! | `n`, `to` | of a cell: the sum, and the version of the last event in it |
//!
//! Writes travel as statements of `BatchExecuteStatement`, each with an outcome of its own. A request is sent once: whether a
//! statement is sent again is decided by the caller, who may know of a newer event.

mod cells;
mod statements;

use std::sync::Arc;

use aws_sdk_dynamodb::types::BatchStatementRequest;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::register::{Answer, Attempt, Progress, Version};

pub use self::cells::{Advanced, CellUpdate};
use self::statements::Texts;
use super::clock::Confirmed;
use super::connection::Connection;
use super::names::LIKES;
use super::statement::Refusal;
use super::table::Table;

/// The rows of `likes`, to be written.
#[derive(Clone, Debug)]
pub struct Registers {
    connection: Connection,
    texts: Arc<Texts>,
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The row is as the write says.
    Stored,
    /// The row has this version, which is not smaller. A copy of the write may have been carried out before.
    Older(Version),
    /// Nothing was written: there is a row where the statement puts one, or none that it could replace. Which, it says.
    Stands(bool),
    /// [`Fault::Transient`]: it is not known whether it was carried out. Any other fault: it was not.
    Failed(Fault),
}

impl Written {
    /// What the partition's progress is told; `None` where no statement is taken until an operator acts.
    pub fn answer(&self) -> Option<Answer> {
        match self {
            Self::Stored => Some(Answer::Stored),
            Self::Older(version) => Some(Answer::Older(*version)),
            Self::Stands(stands) => Some(Answer::Stands(*stands)),
            Self::Failed(Fault::Transient(_) | Fault::Throttled(_)) => Some(Answer::Again),
            Self::Failed(Fault::Poison(_)) => Some(Answer::Refused),
            Self::Failed(Fault::Fatal(_)) => None,
        }
    }
}

impl Registers {
    /// The rows of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone(), texts: Arc::new(Texts::of(&connection.tables.likes)) }
    }

    fn table(&self) -> Table<'_> {
        self.connection.likes()
    }

    /// Sends one request of statements of different rows, at most [`Progress::STATEMENTS`], each by itself, and answers in their
    /// order. A tombstone that this leaves is deleted from the second `gone` on.
    ///
    /// Safe to repeat, also late and by others: a row that has the write's version or a greater one stays as it is. A request
    /// must not arrive after the tombstone of a later removal has expired, so none is sent unless the claim was confirmed lately.
    ///
    /// # Panics
    /// There are more statements than a request takes.
    pub async fn write(&self, attempts: &[Attempt], gone: u64, confirmed: Confirmed) -> Vec<Written> {
        assert!(attempts.len() <= Progress::STATEMENTS, "{} are more than a request takes", attempts.len());
        if let Err(fault) = self.connection.watch.open_to(LIKES) {
            return vec![Written::Failed(fault); attempts.len()];
        }
        let sent = self.send(attempts.len(), |nth| self.texts.statement(&attempts[nth], gone), confirmed).await;
        attempts.iter().zip(sent).map(|(attempt, sent)| self.judged(attempt, sent)).collect()
    }

    fn judged(&self, attempt: &Attempt, sent: Result<(), Refusal>) -> Written {
        match sent {
            Ok(()) => Written::Stored,
            Err(Refusal::Duplicate | Refusal::Condition(None)) if attempt.stands.is_some() => {
                let moved = format!("{}: the row came or went between two statements", self.table().name);
                Written::Failed(Fault::Transient(moved))
            }
            Err(Refusal::Duplicate) => Written::Stands(true),
            Err(Refusal::Condition(None)) => Written::Stands(false),
            Err(Refusal::Condition(Some(row))) => {
                self.table().reader(&row).get("v").map_or_else(Written::Failed, Written::Older)
            }
            Err(Refusal::Fault(fault)) => Written::Failed(fault),
        }
    }

    /// Sends so many statements as one request. One that is refused as a whole goes statement by statement, so that what is
    /// wrong with one of them is not laid to the others.
    async fn send(
        &self,
        count: usize,
        statement: impl Fn(usize) -> BatchStatementRequest,
        confirmed: Confirmed,
    ) -> Vec<Result<(), Refusal>> {
        if count == 0 {
            return Vec::new();
        }
        let whole = self.request((0..count).map(&statement).collect(), confirmed).await;
        match whole {
            Ok(sent) => sent,
            Err(Fault::Poison(_)) if count > 1 => {
                let mut each = Vec::with_capacity(count);
                for nth in 0..count {
                    let alone = self.request(vec![statement(nth)], confirmed).await;
                    each.extend(alone.unwrap_or_else(|fault| vec![Err(Refusal::Fault(fault))]));
                }
                each
            }
            Err(fault) => (0..count).map(|_| Err(Refusal::Fault(fault.clone()))).collect(),
        }
    }

    /// Signs and sends one request, unless the claim has not been confirmed lately.
    async fn request(
        &self,
        statements: Vec<BatchStatementRequest>,
        confirmed: Confirmed,
    ) -> Outcome<Vec<Result<(), Refusal>>> {
        let asked = statements.len();
        let request = self.connection.by_store_clock.batch_execute_statement().set_statements(Some(statements));
        self.table().outcomes(asked, request.customize().interceptor(confirmed).send().await)
    }
}
