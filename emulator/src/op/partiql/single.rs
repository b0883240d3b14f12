//! ExecuteStatement: one statement, whose errors are those of the request.

use serde::Deserialize;

use super::{Prepared, StatementRequest};
use crate::engine::Engine;
use crate::error::Error;
use crate::json::Writer;
use crate::op::Operation;
use crate::op::capacity::{Consumed, Report};

/// Executes one statement.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct ExecuteStatement {
    request: StatementRequest,
    /// The prepared request.
    #[serde(skip)]
    ready: Option<Box<Result<(Report, Prepared), Error>>>,
}

impl ExecuteStatement {
    /// The action of its statement, as rules and policies name it.
    pub(in crate::op) fn action(&self) -> Option<&'static str> {
        self.request.target().map(|(action, _)| action)
    }

    fn read(&mut self) -> Result<(Report, Prepared), Error> {
        let request = &mut self.request;
        let report = Report::parse(request.return_consumed_capacity.as_deref())?;
        request.check("")?;
        Ok((report, request.read()?))
    }
}

impl Operation for ExecuteStatement {
    fn prepare(&mut self) {
        self.ready = Some(Box::new(self.read()));
    }

    fn run(mut self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        let (report, prepared) = match self.ready.take() {
            Some(ready) => (*ready)?,
            None => self.read()?,
        };
        let mut consumed = Consumed::default();
        let found = prepared.meet(engine, false)?.carry_out(engine, &mut consumed)?;
        Ok(Writer::document(|out| {
            out.key("Items").array(|out| found.iter().for_each(|item| item.write(out)));
            consumed.write_one(out, report);
        }))
    }
}
