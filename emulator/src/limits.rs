//! DynamoDB's published limits, one constant each; leaves their enforcement to the operations.

use std::ops::RangeInclusive;

pub(crate) const KIB: usize = 1024;
pub(crate) const MIB: usize = 1024 * KIB;

/// The largest request body.
pub(crate) const REQUEST_BYTES: usize = 16 * MIB;
/// The largest item, names and values.
pub(crate) const ITEM_BYTES: usize = 400 * KIB;
/// The largest partition key.
pub(crate) const HASH_KEY_BYTES: usize = 2048;
/// The largest sort key.
pub(crate) const RANGE_KEY_BYTES: usize = 1024;
/// Where a page of Query, Scan or GetRecords ends.
pub(crate) const PAGE_BYTES: usize = MIB;
/// Puts and deletes in one BatchWriteItem.
pub(crate) const BATCH_WRITES: usize = 25;
/// Keys in one BatchGetItem.
pub(crate) const BATCH_GETS: usize = 100;
/// What one BatchGetItem returns at most.
pub(crate) const BATCH_GET_BYTES: usize = 16 * MIB;
/// Statements in one BatchExecuteStatement.
pub(crate) const BATCH_STATEMENTS: usize = 25;
/// Characters of a statement.
pub(crate) const STATEMENT_CHARS: usize = 8192;
/// Actions in one transaction.
pub(crate) const TRANSACTION_ACTIONS: usize = 100;
/// What one writing transaction sends, and the items one reading transaction reads.
pub(crate) const TRANSACTION_BYTES: usize = 4 * MIB;
/// Characters of a ClientRequestToken.
pub(crate) const TOKEN_CHARS: usize = 36;
/// How long a ClientRequestToken is remembered.
pub(crate) const TOKEN_MILLIS: u64 = 10 * 60 * 1000;
/// Records of one GetRecords.
pub(crate) const RECORDS: usize = 1000;
/// Shards on one page of DescribeStream.
pub(crate) const SHARDS_PAGE: usize = 100;
/// Characters of a stream's name.
pub(crate) const ARN_CHARS: RangeInclusive<usize> = 37..=1024;
/// Characters of a shard's name.
pub(crate) const SHARD_ID_CHARS: RangeInclusive<usize> = 28..=65;
/// Streams on one page of ListStreams.
pub(crate) const STREAMS_PAGE: usize = 100;
/// Tables on one page of ListTables.
pub(crate) const TABLES_PAGE: usize = 100;
/// How long a shard iterator can be used.
pub(crate) const ITERATOR_MILLIS: u64 = 15 * 60 * 1000;
/// The line and headers of a request.
pub(crate) const HEAD_BYTES: usize = 16 * KIB;
/// The longest name of an attribute, key attributes excepted.
pub(crate) const NAME_BYTES: usize = 64 * KIB - 1;
/// The longest name of an attribute of a key, and of one that an index projects by name.
pub(crate) const KEY_NAME_BYTES: usize = 255;
/// Segments of a parallel scan.
pub(crate) const SEGMENTS: u64 = 1_000_000;
/// Local secondary indexes of one table.
pub(crate) const LOCAL_INDEXES: usize = 5;
/// Longest life of a request its client gave up on: an older signature is refused.
pub(crate) const GHOST_MILLIS: u64 = 5 * 60 * 1000;
/// Partitions of a new table that is on demand: what its first 4,000 write units a second need.
pub(crate) const ON_DEMAND_PARTITIONS: u64 = 4;
/// Read units a second that one partition bears.
pub(crate) const PARTITION_READS: u64 = 3000;
/// Write units a second that one partition bears.
pub(crate) const PARTITION_WRITES: u64 = 1000;
