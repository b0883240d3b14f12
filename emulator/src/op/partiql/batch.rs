//! BatchExecuteStatement: up to 25 statements, all reads or all writes, with separate outcomes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::Deserialize;

use super::{Met, Prepared, StatementRequest};
use crate::engine::Engine;
use crate::error::Error;
use crate::expression::partiql::target;
use crate::fault::Fault;
use crate::json::Writer;
use crate::limits::BATCH_STATEMENTS;
use crate::op::batch::refuse_duplicates;
use crate::op::capacity::{Consumed, Report};
use crate::op::params::wrong_length;
use crate::op::write::Returned;
use crate::policies::Denied;

/// A batch of statements. They are parsed when the request is decoded, since it is the most frequent one and the engine serves
/// one request at a time. The expressions and statements of other requests are parsed while the engine serves them.
#[derive(Debug, Deserialize)]
#[serde(from = "BatchExecuteStatement")]
pub(crate) struct StatementBatch {
    texts: Vec<String>,
    /// Statements that fail because of faults or policies, by position.
    struck: BTreeMap<usize, Struck>,
    ready: Result<Ready, Error>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchExecuteStatement {
    #[serde(default)]
    statements: Vec<StatementRequest>,
    return_consumed_capacity: Option<String>,
}

/// The error of a statement that fails because of a fault or policy, and whether it is executed nevertheless.
#[derive(Debug)]
struct Struck {
    error: Error,
    applied: bool,
}

#[derive(Debug)]
struct Ready {
    report: Report,
    statements: Vec<Result<Prepared, Error>>,
}

impl StatementBatch {
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The action of a statement, as rules and policies name it, and its table.
    pub(crate) fn target(&self, nth: usize) -> Option<(&'static str, Cow<'_, str>)> {
        target(&self.texts[nth])
    }

    /// Refuses statements that are not allowed.
    pub(crate) fn deny(&mut self, denied: Denied) {
        self.struck.extend(denied.into_iter().map(|(nth, error)| (nth, Struck { error, applied: false })));
    }

    /// Applies a fault to one statement, unless it is refused already. The others are not affected.
    pub(crate) fn strike(&mut self, nth: usize, fault: Fault, rng: &mut StdRng) -> bool {
        let (error, applied) = match fault {
            _ if self.struck.contains_key(&nth) => return false,
            Fault::Throttle => (Error::throttled(), false),
            Fault::Conflict => (Error::in_conflict(), false),
            Fault::InternalError { applied } => (Error::failed(), applied.unwrap_or_else(|| rng.random())),
            Fault::DropReply => (Error::failed(), true),
            Fault::Ghost { .. } | Fault::Outage => (Error::failed(), false),
            Fault::Latency { .. } | Fault::Unprocessed => return false,
        };
        self.struck.insert(nth, Struck { error, applied });
        true
    }

    /// A batch of only one of the statements, to execute it later.
    pub(crate) fn alone(&self, nth: usize) -> Self {
        let only = |ready: &Ready| Ready { report: Report::None, statements: vec![ready.statements[nth].clone()] };
        let ready = self.ready.as_ref().map(only).map_err(Error::clone);
        Self { texts: vec![self.texts[nth].clone()], struck: BTreeMap::new(), ready }
    }
}

impl From<BatchExecuteStatement> for StatementBatch {
    fn from(mut request: BatchExecuteStatement) -> Self {
        let ready = request.read();
        let texts = request.statements.into_iter().map(|statement| statement.statement).collect();
        Self { texts, struck: BTreeMap::new(), ready }
    }
}

impl BatchExecuteStatement {
    fn read(&mut self) -> Result<Ready, Error> {
        let report = Report::parse(self.return_consumed_capacity.as_deref())?;
        if !(1..=BATCH_STATEMENTS).contains(&self.statements.len()) {
            return Err(wrong_length("statements", BATCH_STATEMENTS));
        }
        for (nth, statement) in self.statements.iter().enumerate() {
            statement.check(format_args!("statements.{}.member.", nth + 1))?;
        }
        let statements: Vec<_> = self.statements.iter_mut().map(StatementRequest::read).collect();
        let mut kinds = statements.iter().flatten().map(|prepared| prepared.statement.reads());
        let first = kinds.next();
        if kinds.any(|reads| Some(reads) != first) {
            return Err(Error::validation("Read and write requests together in the same batch is not supported."));
        }
        Ok(Ready { report, statements })
    }
}

/// Executes statements, each by itself.
pub(crate) fn execute_batch(mut request: StatementBatch, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let Ready { report, statements } = request.ready?;
    let met: Vec<(Option<String>, Result<Met, Error>)> = statements
        .into_iter()
        .map(|read| match read {
            Ok(prepared) => (Some(prepared.statement.table.clone()), prepared.meet(engine, true)),
            Err(error) => (None, Err(error)),
        })
        .collect();
    refuse_duplicates(met.iter().filter_map(|(_, met)| met.as_ref().ok()).map(Met::item))?;
    let mut consumed = Consumed::default();
    let mut outcomes = Vec::with_capacity(met.len());
    for (nth, (table, met)) in met.into_iter().enumerate() {
        let returned = met.and_then(|met| carry_out(met, request.struck.remove(&nth), engine, &mut consumed));
        outcomes.push((table, returned));
    }
    Ok(Writer::document(|out| {
        out.key("Responses")
            .array(|out| outcomes.iter().for_each(|(table, returned)| write(table.as_ref(), returned, out)));
        consumed.write_all(out, report, None);
    }))
}

fn carry_out(
    met: Met,
    struck: Option<Struck>,
    engine: &mut Engine,
    consumed: &mut Consumed,
) -> Result<Option<Returned>, Error> {
    let Some(Struck { error, applied }) = struck else { return met.carry_out(engine, consumed) };
    if applied {
        // The client gets the error, whatever the outcome was.
        let _ = met.carry_out(engine, consumed);
    }
    Err(error)
}

/// Writes the outcome of a statement, with its table.
fn write(table: Option<&String>, returned: &Result<Option<Returned>, Error>, out: &mut Writer) {
    out.object(|out| {
        match returned {
            Ok(found) => found.iter().for_each(|item| item.write(out.key("Item"))),
            Err(error) => out.key("Error").object(|out| error.write_outcome(out)),
        }
        table.iter().for_each(|table| out.key("TableName").string(table));
    });
}
