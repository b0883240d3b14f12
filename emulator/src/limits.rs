//! DynamoDB's published limits. The operations enforce them.

use std::ops::RangeInclusive;

pub(crate) const KIB: usize = 1024;
pub(crate) const MIB: usize = 1024 * KIB;

/// The maximum size of a request body.
pub(crate) const REQUEST_BYTES: usize = 16 * MIB;
/// The maximum size of an item, with names and values.
pub(crate) const ITEM_BYTES: usize = 400 * KIB;
/// The maximum size of a partition key.
pub(crate) const HASH_KEY_BYTES: usize = 2048;
/// The maximum size of a sort key.
pub(crate) const RANGE_KEY_BYTES: usize = 1024;
/// The size at which a page of Query, Scan or GetRecords ends.
pub(crate) const PAGE_BYTES: usize = MIB;
/// Puts and deletes in one BatchWriteItem.
pub(crate) const BATCH_WRITES: usize = 25;
/// Keys in one BatchGetItem.
pub(crate) const BATCH_GETS: usize = 100;
/// The maximum size of the answer of BatchGetItem.
pub(crate) const BATCH_GET_BYTES: usize = 16 * MIB;
/// Statements in one BatchExecuteStatement.
pub(crate) const BATCH_STATEMENTS: usize = 25;
/// Characters of a statement.
pub(crate) const STATEMENT_CHARS: usize = 8192;
/// Actions in one transaction.
pub(crate) const TRANSACTION_ACTIONS: usize = 100;
/// The maximum size of a writing transaction, and of the items of a reading one.
pub(crate) const TRANSACTION_BYTES: usize = 4 * MIB;
/// Characters of a ClientRequestToken.
pub(crate) const TOKEN_CHARS: usize = 36;
/// How long a ClientRequestToken is remembered.
pub(crate) const TOKEN_MILLIS: u64 = 10 * 60 * 1000;
/// Records of one GetRecords.
pub(crate) const RECORDS: usize = 1000;
/// Shards on one page of DescribeStream.
pub(crate) const SHARDS_PAGE: usize = 100;
/// The length of a stream's ARN in characters.
pub(crate) const ARN_CHARS: RangeInclusive<usize> = 37..=1024;
/// The length of a shard's id in characters.
pub(crate) const SHARD_ID_CHARS: RangeInclusive<usize> = 28..=65;
/// Streams on one page of ListStreams.
pub(crate) const STREAMS_PAGE: usize = 100;
/// Tables on one page of ListTables.
pub(crate) const TABLES_PAGE: usize = 100;
/// How long a shard iterator is valid.
pub(crate) const ITERATOR_MILLIS: u64 = 15 * 60 * 1000;
/// The maximum size of the line and headers of a request.
pub(crate) const HEAD_BYTES: usize = 16 * KIB;
/// The maximum length of an attribute's name, except for key attributes.
pub(crate) const NAME_BYTES: usize = 64 * KIB - 1;
/// The maximum length of the name of a key attribute, and of one that an index projects by name.
pub(crate) const KEY_NAME_BYTES: usize = 255;
/// Segments of a parallel scan.
pub(crate) const SEGMENTS: u64 = 1_000_000;
/// Local secondary indexes of one table.
pub(crate) const LOCAL_INDEXES: usize = 5;
/// The longest delay of a request whose client has given up. An older signature is refused.
pub(crate) const GHOST_MILLIS: u64 = 5 * 60 * 1000;
/// The partitions of a new on-demand table, which suffice for its first 4,000 write units per second.
pub(crate) const ON_DEMAND_PARTITIONS: u64 = 4;
/// The read units per second of one partition.
pub(crate) const PARTITION_READS: u64 = 3000;
/// The write units per second of one partition.
pub(crate) const PARTITION_WRITES: u64 = 1000;
