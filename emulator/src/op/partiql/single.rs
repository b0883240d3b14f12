//! ExecuteStatement: one statement, whose errors are those of the request.

use serde::Deserialize;

use super::{Prepared, StatementRequest};
use crate::engine::Engine;
use crate::error::Error;
use crate::expression::partiql::target;
use crate::json::Writer;
use crate::op::Operation;
use crate::op::capacity::{Consumed, Report};

/// Executes one statement.
#[derive(Debug, Deserialize)]
#[serde(from = "StatementRequest")]
pub(crate) struct ExecuteStatement {
    text: String,
    ready: Box<Result<(Report, Prepared), Error>>,
}

impl From<StatementRequest> for ExecuteStatement {
    fn from(mut request: StatementRequest) -> Self {
        let ready = Box::new(read(&mut request));
        Self { text: request.statement, ready }
    }
}

fn read(request: &mut StatementRequest) -> Result<(Report, Prepared), Error> {
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    request.check("")?;
    Ok((report, request.read()?))
}

impl ExecuteStatement {
    /// The action of its statement, as rules and policies name it.
    pub(in crate::op) fn action(&self) -> Option<&'static str> {
        target(&self.text).map(|(action, _)| action)
    }
}

impl Operation for ExecuteStatement {
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        let (report, prepared) = (*self.ready)?;
        let mut consumed = Consumed::default();
        let found = prepared.meet(engine, false)?.carry_out(engine, &mut consumed)?;
        Ok(Writer::document(|out| {
            out.key("Items").array(|out| found.iter().for_each(|item| item.write(out)));
            consumed.write_one(out, report);
        }))
    }
}
