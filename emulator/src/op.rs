//! The operations of DynamoDB and its streams that the emulator has. Each is a request, and a function that executes it
//! and writes the answer.

mod backups;
mod batch;
mod capacity;
mod describe;
mod items;
mod page;
mod params;
mod partiql;
mod query;
mod scan;
mod streams;
mod tables;
mod transact;
mod ttl;
mod write;

pub(crate) use self::partiql::StatementBatch;

use rand::RngExt;
use rand::rngs::StdRng;

use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::expression::partiql::target;
use crate::fault::Fault;

/// Declares the operations of an API by name, each with the type of its request and the function that executes it.
macro_rules! calls {
    ($($api:literal { $($name:ident: $request:ty => $execute:path,)* })*) => {
        /// A decoded request.
        pub(crate) enum Call {
            $($($name($request),)*)*
        }

        impl Call {
            /// Decodes the body of a request whose `X-Amz-Target` is `target`.
            pub(crate) fn decode(target: &str, body: &[u8]) -> Result<Self, Error> {
                match target {
                    $($(concat!($api, ".", stringify!($name)) => Ok(Self::$name(serde_json::from_slice(body)?)),)*)*
                    _ => Err(Error::new(Kind::UnknownOperation, "")),
                }
            }

            /// The operation's name, without that of the API.
            pub(crate) fn operation(&self) -> &'static str {
                match self {
                    $($(Self::$name(_) => stringify!($name),)*)*
                }
            }

            /// Executes the request.
            pub(crate) fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
                match self {
                    $($(Self::$name(request) => $execute(request, engine),)*)*
                }
            }
        }
    };
}

calls! {
    "DynamoDB_20120810" {
        CreateTable: tables::CreateTable => tables::create,
        DescribeTable: params::TableRequest => describe::describe_table,
        ListTables: describe::ListTables => describe::list,
        DeleteTable: params::TableRequest => tables::delete,
        UpdateTable: tables::UpdateTable => tables::update,
        UpdateTimeToLive: ttl::UpdateTimeToLive => ttl::update,
        DescribeTimeToLive: params::TableRequest => ttl::describe,
        UpdateContinuousBackups: backups::UpdateContinuousBackups => backups::update,
        DescribeContinuousBackups: params::TableRequest => backups::describe,
        RestoreTableToPointInTime: backups::RestoreTableToPointInTime => backups::restore,
        PutItem: write::Parameters => items::put,
        GetItem: items::GetItem => items::get,
        UpdateItem: write::Parameters => items::update,
        DeleteItem: write::Parameters => items::delete,
        BatchGetItem: batch::BatchGetItem => batch::get,
        BatchWriteItem: batch::BatchWriteItem => batch::write,
        TransactWriteItems: transact::TransactWriteItems => transact::write,
        TransactGetItems: transact::TransactGetItems => transact::get,
        ExecuteStatement: partiql::StatementRequest => partiql::execute,
        BatchExecuteStatement: partiql::StatementBatch => partiql::execute_batch,
        Query: page::Parameters => query::run,
        Scan: page::Parameters => scan::run,
    }
    "DynamoDBStreams_20120810" {
        ListStreams: streams::ListStreams => streams::list,
        DescribeStream: streams::DescribeStream => streams::describe,
        GetShardIterator: streams::GetShardIterator => streams::get_iterator,
        GetRecords: streams::GetRecords => streams::get_records,
    }
}

impl Call {
    /// The error for a fault after which the request is not executed.
    pub(crate) fn refused_by(&self, fault: Fault, rng: &mut StdRng) -> Error {
        let error = match fault {
            Fault::Throttle => Error::throttled(),
            Fault::Conflict => Error::in_conflict(),
            _ => return Error::failed(),
        };
        if let Some(actions) = self.actions().filter(|actions| *actions > 0) {
            return Error::cancelled_by(rng.random_range(0..actions), actions, error);
        }
        match self {
            _ if fault == Fault::Conflict => error,
            Self::GetRecords(_) | Self::GetShardIterator(_) => {
                Error::new(Kind::LimitExceeded, "Rate exceeded for shard")
            }
            Self::PutItem(_)
            | Self::GetItem(_)
            | Self::UpdateItem(_)
            | Self::DeleteItem(_)
            | Self::BatchGetItem(_)
            | Self::BatchWriteItem(_)
            | Self::ExecuteStatement(_)
            | Self::Query(_)
            | Self::Scan(_) => Error::new(
                Kind::ProvisionedThroughputExceeded,
                "The level of configured provisioned throughput for the table was exceeded. Consider increasing your provisioning level with the UpdateTable API.",
            ),
            _ => Error::new(Kind::Throttling, "Rate exceeded"),
        }
    }

    /// The action of the request's single PartiQL statement.
    pub(crate) fn action(&self) -> Option<&'static str> {
        match self {
            Self::ExecuteStatement(request) => target(&request.statement).map(|(action, _)| action),
            _ => None,
        }
    }

    /// Leaves a part of a batch out, if the protocol has a way to answer so.
    pub(crate) fn leave_some(&mut self) {
        match self {
            Self::BatchGetItem(request) => request.partly = true,
            Self::BatchWriteItem(request) => request.partly = true,
            _ => {}
        }
    }

    /// The request, if its statements have separate outcomes.
    pub(crate) fn as_batch(&mut self) -> Option<&mut StatementBatch> {
        match self {
            Self::BatchExecuteStatement(request) => Some(request),
            _ => None,
        }
    }

    /// The number of actions in a transaction.
    fn actions(&self) -> Option<usize> {
        match self {
            Self::TransactWriteItems(request) => Some(request.transact_items.len()),
            Self::TransactGetItems(request) => Some(request.transact_items.len()),
            _ => None,
        }
    }
}
