//! The operations this server knows: each a request decoded straight into its own type, what it touches, and what it does.

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

pub(crate) use self::partiql::BatchExecuteStatement;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::error::{Error, Kind, Reason};
use crate::fault::Fault;
use crate::value::Refusal;

/// One kind of request.
trait Operation: DeserializeOwned {
    /// Does what needs no engine, which only one request has at a time: expressions are read here. Changes nothing of what it is.
    fn prepare(&mut self) {}

    /// Carries it out and writes the answer.
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error>;

    /// Carries a part of it out, where the protocol lets a server say so.
    fn run_partly(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        self.run(engine)
    }
}

/// Declares the requests of an API by name.
macro_rules! calls {
    ($($api:literal { $($name:ident: $request:ty,)* })*) => {
        /// A decoded request.
        pub(crate) enum Call {
            $($($name($request),)*)*
        }

        impl Call {
            /// Reads the body of a request whose `X-Amz-Target` is `target`.
            pub(crate) fn decode(target: &str, body: &[u8]) -> Result<Self, Error> {
                match target {
                    $($(concat!($api, ".", stringify!($name)) => Ok(Self::$name(decode(body)?)),)*)*
                    _ => Err(Error::new(Kind::UnknownOperation, "")),
                }
            }

            /// The operation's name, without the API's.
            pub(crate) fn operation(&self) -> &'static str {
                match self {
                    $($(Self::$name(_) => stringify!($name),)*)*
                }
            }

            /// Does what needs no engine, so that other requests have it meanwhile.
            pub(crate) fn prepare(&mut self) {
                match self {
                    $($(Self::$name(request) => request.prepare(),)*)*
                }
            }

            /// Carries the request out, or a part of it where the protocol lets a server say so.
            pub(crate) fn run(self, engine: &mut Engine, partly: bool) -> Result<Vec<u8>, Error> {
                match self {
                    $($(Self::$name(request) if partly => request.run_partly(engine),)*)*
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
        TransactWriteItems: transact::TransactWriteItems,
        TransactGetItems: transact::TransactGetItems,
        ExecuteStatement: partiql::ExecuteStatement,
        BatchExecuteStatement: partiql::BatchExecuteStatement,
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
    /// How this request is refused when a fault says so and it is not to be carried out.
    pub(crate) fn refused_by(&self, fault: Fault, rng: &mut StdRng) -> Error {
        let reason = match fault {
            Fault::Throttle => Reason::throttled(),
            Fault::Conflict => Reason::new("TransactionConflict", "Transaction is ongoing for the item"),
            _ => {
                return Error::failed();
            }
        };
        match (self.actions(), self) {
            (Some(actions), _) if actions > 0 => {
                let mut reasons = vec![Reason::NONE; actions];
                reasons[rng.random_range(0..actions)] = reason;
                Error::cancelled(reasons)
            }
            _ if fault == Fault::Conflict => Error::in_conflict(),
            (_, Self::GetRecords(_) | Self::GetShardIterator(_)) => {
                Error::new(Kind::LimitExceeded, "Rate exceeded for shard")
            }
            (
                _,
                Self::PutItem(_)
                | Self::GetItem(_)
                | Self::UpdateItem(_)
                | Self::DeleteItem(_)
                | Self::BatchGetItem(_)
                | Self::BatchWriteItem(_)
                | Self::ExecuteStatement(_)
                | Self::Query(_)
                | Self::Scan(_),
            ) => Error::new(
                Kind::ProvisionedThroughputExceeded,
                "The level of configured provisioned throughput for the table was exceeded. Consider increasing your provisioning level with the UpdateTable API.",
            ),
            _ => Error::new(Kind::Throttling, "Rate exceeded"),
        }
    }

    /// What the request's one PartiQL statement does.
    pub(crate) fn action(&self) -> Option<&'static str> {
        match self {
            Self::ExecuteStatement(request) => request.action(),
            _ => None,
        }
    }

    /// The request, if its statements have outcomes of their own.
    pub(crate) fn as_batch(&mut self) -> Option<&mut BatchExecuteStatement> {
        match self {
            Self::BatchExecuteStatement(request) => Some(request),
            _ => None,
        }
    }

    /// How many actions a transaction has.
    fn actions(&self) -> Option<usize> {
        match self {
            Self::TransactWriteItems(request) => Some(request.actions()),
            Self::TransactGetItems(request) => Some(request.actions()),
            _ => None,
        }
    }
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    // A blank body is an empty request in none of the protocol's clients.
    serde_json::from_slice(body).map_err(|error| Refusal::from(error).into())
}
