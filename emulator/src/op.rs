//! The operations of the server. Each is a type that its request is decoded into, with its tables and its execution.

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
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::fault::Fault;

/// An operation. The most frequent ones parse their expressions when they are decoded, since the engine serves one request at
/// a time.
trait Operation: DeserializeOwned {
    /// Executes the request and writes the answer.
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error>;
}

/// Declares the operations of an API by name.
macro_rules! calls {
    ($($api:literal { $($name:ident: $request:ty,)* })*) => {
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
                    $($(Self::$name(request) => request.run(engine),)*)*
                }
            }
        }
    };
}

calls! {
    "DynamoDB_20120810" {
        CreateTable: tables::CreateTable,
        DescribeTable: describe::DescribeTable,
        ListTables: describe::ListTables,
        DeleteTable: tables::DeleteTable,
        UpdateTable: tables::UpdateTable,
        UpdateTimeToLive: ttl::UpdateTimeToLive,
        DescribeTimeToLive: ttl::DescribeTimeToLive,
        UpdateContinuousBackups: backups::UpdateContinuousBackups,
        DescribeContinuousBackups: backups::DescribeContinuousBackups,
        RestoreTableToPointInTime: backups::RestoreTableToPointInTime,
        PutItem: items::PutItem,
        GetItem: items::GetItem,
        UpdateItem: items::UpdateItem,
        DeleteItem: items::DeleteItem,
        BatchGetItem: batch::BatchGetItem,
        BatchWriteItem: batch::BatchWriteItem,
        TransactWriteItems: transact::TransactWrite,
        TransactGetItems: transact::TransactGetItems,
        ExecuteStatement: partiql::ExecuteStatement,
        BatchExecuteStatement: partiql::StatementBatch,
        Query: query::Query,
        Scan: scan::Scan,
    }
    "DynamoDBStreams_20120810" {
        ListStreams: streams::ListStreams,
        DescribeStream: streams::DescribeStream,
        GetShardIterator: streams::GetShardIterator,
        GetRecords: streams::GetRecords,
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
            Self::ExecuteStatement(request) => request.action(),
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
            Self::TransactWriteItems(request) => Some(request.actions),
            Self::TransactGetItems(request) => Some(request.actions()),
            _ => None,
        }
    }
}
