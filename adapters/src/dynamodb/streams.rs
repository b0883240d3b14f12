//! The change stream of the likes table, which relays read: its shards, their children, iterators and pages of records,
//! over DynamoDB Streams.

mod page;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{StreamViewType, TableDescription};
use aws_sdk_dynamodbstreams::primitives::DateTime;
use aws_sdk_dynamodbstreams::types::{Shard, ShardFilter, ShardFilterType, ShardIteratorType, StreamDescription};
use parking_lot::Mutex;
use tally_core::fault::Fault;
use tally_core::ids::{Sequence, StreamLabel, StreamShardId};
use tally_core::lineage::Listed;
use tally_core::ports::{ChangeStream, Iterator, Position, Records, StreamFault, StreamInfo};
use tally_core::time::UnixMillis;
use tokio::sync::OnceCell;

use self::page::ReadPage;
use super::connection::Connection;
use super::fault::stream;
use super::tables::{describe, stream_view};

#[derive(Clone, Debug)]
pub struct Streams {
    connection: Connection,
    /// The ARN of each of the table's streams without its label.
    arns: OnceCell<String>,
    /// When the latest stream was switched on. The engine is asked once for each stream.
    created: Arc<Mutex<Option<(StreamLabel, UnixMillis)>>>,
    /// Whether the engine does not know the filter for children, or ignores it.
    unfiltered: Arc<AtomicBool>,
    /// How many digits the engine writes a sequence number with. Some engines pad numbers, and know them only as they
    /// wrote them.
    digits: Arc<AtomicUsize>,
}

impl Streams {
    pub fn new(connection: &Connection) -> Self {
        Self {
            connection: connection.clone(),
            arns: OnceCell::new(),
            created: Arc::default(),
            unfiltered: Arc::default(),
            digits: Arc::default(),
        }
    }

    fn table(&self) -> &str {
        &self.connection.tables.likes
    }

    async fn describe_table(&self) -> Result<TableDescription, Fault> {
        describe(&self.connection, self.table()).await
    }

    async fn arn(&self, label: &StreamLabel) -> Result<String, StreamFault> {
        let arns = async || Ok::<_, StreamFault>(self.latest(&self.describe_table().await?)?.0.to_owned());
        Ok(format!("{}{label}", self.arns.get_or_try_init(arns).await?))
    }

    /// Returns what the ARNs of the table's streams begin with, and the label of the latest. The label is the one in
    /// the ARN, since requests name the ARN: some engines state another label beside it, a millisecond off.
    fn latest<'a>(&self, table: &'a TableDescription) -> Result<(&'a str, &'a str), StreamFault> {
        let arn = table.latest_stream_arn().ok_or_else(|| self.has_no_stream())?;
        Ok(arn.split_at(arn.rfind('/').map_or(0, |slash| slash + 1)))
    }

    /// Returns how the label that the engine states differs from the one in the stream's ARN, if it does.
    ///
    /// # Errors
    /// The table cannot be described, or has no stream.
    pub async fn other_label(&self) -> Result<Option<String>, StreamFault> {
        let table = self.describe_table().await?;
        let (_, label) = self.latest(&table)?;
        let other = table.latest_stream_label().filter(|stated| *stated != label);
        Ok(other.map(|stated| format!("its ARN ends with {label}, which is used, and its label is {stated}")))
    }

    /// Returns a sequence number with as many digits as this engine writes.
    fn as_written<'a>(&self, sequence: &'a Sequence) -> &'a str {
        let padded = sequence.as_str();
        let digits = self.digits.load(Ordering::Relaxed).max(sequence.wire().len());
        &padded[padded.len().saturating_sub(digits)..]
    }

    /// Returns when the stream `label` of `table` was switched on.
    async fn created(&self, label: &StreamLabel, table: &TableDescription) -> Result<UnixMillis, StreamFault> {
        if let Some((_, created)) = self.created.lock().as_ref().filter(|(latest, _)| latest == label) {
            return Ok(*created);
        }
        let described = self.page(table.latest_stream_arn().unwrap_or_default(), None, None).await?;
        let created = self.when(described.creation_request_date_time(), "stream")?;
        *self.created.lock() = Some((label.clone(), created));
        Ok(created)
    }

    /// Converts a creation time. An absent one is an error, never a default: a stream that looks as old as its table
    /// may hide rows that no streamer followed.
    fn when(&self, time: Option<&DateTime>, what: &str) -> Result<UnixMillis, Fault> {
        time.map(millis).ok_or_else(|| Fault::Fatal(format!("{}: no creation time of its {what}", self.table())))
    }

    fn has_no_stream(&self) -> StreamFault {
        StreamFault::Off(self.table().to_owned())
    }

    /// Reads one page of a stream's description, after the shard `after`.
    async fn page(
        &self,
        arn: &str,
        after: Option<&str>,
        filter: Option<ShardFilter>,
    ) -> Result<StreamDescription, StreamFault> {
        let describe = self.connection.streams.describe_stream().stream_arn(arn).set_shard_filter(filter);
        let describe = describe.set_exclusive_start_shard_id(after.map(str::to_owned));
        let reply = describe.send().await.map_err(|error| stream(arn, &error))?;
        reply
            .stream_description
            .ok_or_else(|| Fault::Transient(format!("{arn}: described without a description")).into())
    }

    /// Lists every shard of a stream, or those that pass `filter`, in all pages.
    async fn list(&self, arn: &str, filter: Option<ShardFilter>) -> Result<Vec<Listed>, StreamFault> {
        let mut shards = Vec::new();
        let mut after = None;
        loop {
            let page = self.page(arn, after.as_deref(), filter.clone()).await?;
            let starts =
                page.shards().iter().filter_map(|shard| shard.sequence_number_range()?.starting_sequence_number());
            if let Some(digits) = starts.map(str::len).max() {
                self.digits.fetch_max(digits, Ordering::Relaxed);
            }
            shards.extend(page.shards().iter().filter_map(listed));
            after = page.last_evaluated_shard_id;
            if after.is_none() {
                return Ok(shards);
            }
        }
    }
}

#[async_trait]
impl ChangeStream for Streams {
    async fn info(&self) -> Result<StreamInfo, StreamFault> {
        let table = self.describe_table().await?;
        let label = StreamLabel::from(self.latest(&table)?.1);
        match stream_view(&table).ok_or_else(|| self.has_no_stream())? {
            StreamViewType::NewAndOldImages => {}
            found => {
                let (table, wanted) = (self.table(), StreamViewType::NewAndOldImages);
                let message = format!("the stream of table {table} carries {found}, not {wanted}");
                return Err(Fault::Fatal(message).into());
            }
        }
        let table_created = self.when(table.creation_date_time(), "table")?;
        let created = self.created(&label, &table).await?;
        Ok(StreamInfo { label, created, table_created })
    }

    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault> {
        self.list(&self.arn(label).await?, None).await
    }

    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault> {
        if self.unfiltered.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let filter = ShardFilter::builder().r#type(ShardFilterType::ChildShards).shard_id(parent.as_str()).build();
        let found = match self.list(&self.arn(label).await?, Some(filter)).await {
            Ok(found) if found.iter().all(|child| child.parent.as_ref() == Some(parent)) => Some(found),
            Ok(_) | Err(StreamFault::Fault(Fault::Poison(_))) => None,
            Err(fault) => return Err(fault),
        };
        self.unfiltered.store(found.is_none(), Ordering::Relaxed);
        Ok(found)
    }

    async fn iterator(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        position: Position,
    ) -> Result<Iterator, StreamFault> {
        let arn = self.arn(label).await?;
        let get = self.connection.streams.get_shard_iterator().stream_arn(&arn).shard_id(shard.as_str());
        let get = match position {
            Position::Oldest => get.shard_iterator_type(ShardIteratorType::TrimHorizon),
            Position::After(sequence) => get
                .shard_iterator_type(ShardIteratorType::AfterSequenceNumber)
                .sequence_number(self.as_written(&sequence)),
        };
        let reply = get.send().await.map_err(|error| stream(&arn, &error))?;
        let iterator =
            reply.shard_iterator.ok_or_else(|| Fault::Transient(format!("{arn}: no iterator of {shard}")))?;
        Ok(Iterator(iterator))
    }

    async fn records(&self, iterator: &Iterator, limit: u32) -> Result<Records, StreamFault> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let get = self.connection.streams.get_records().shard_iterator(&iterator.0).limit(limit);
        let read = ReadPage::default();
        get.customize().interceptor(read.clone()).send().await.map_err(|error| stream(self.table(), &error))?;
        Ok(read.page())
    }
}

fn listed(shard: &Shard) -> Option<Listed> {
    let ended = shard.sequence_number_range().is_some_and(|range| range.ending_sequence_number().is_some());
    Some(Listed { id: shard.shard_id()?.into(), parent: shard.parent_shard_id().map(Into::into), ended })
}

fn millis(at: &DateTime) -> UnixMillis {
    UnixMillis(at.to_millis().ok().and_then(|millis| u64::try_from(millis).ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::connection::Settings;
    use super::super::connection::told::Told;
    use super::*;

    /// A stream whose engine writes sequence numbers of 25 digits.
    const TABLE: &str = r#"{"Table":{"LatestStreamArn":"arn:stream/s-1","LatestStreamLabel":"s-1"}}"#;
    const STREAM: &str = r#"{"StreamDescription":{"Shards":[
        {"ShardId":"shard-1","SequenceNumberRange":{"StartingSequenceNumber":"0000000000000000000000012"}}]}}"#;

    /// Made by hand: the engine's label is a millisecond off.
    const OFF: &str = r#"{"Table":{"CreationDateTime":1,"LatestStreamArn":"arn:table/likes/stream/2026-11-27T08:00:00.123",
        "LatestStreamLabel":"2026-11-27T08:00:00.124",
        "StreamSpecification":{"StreamEnabled":true,"StreamViewType":"NEW_AND_OLD_IMAGES"}}}"#;
    const CREATED: &str = r#"{"StreamDescription":{"CreationRequestDateTime":2,"Shards":[]}}"#;

    #[tokio::test(start_paused = true)]
    async fn a_label_that_is_not_the_one_in_the_streams_arn_is_named_and_the_arn_is_used() {
        let told = Told::new(&[(200, OFF), (200, CREATED), (200, OFF), (200, CREATED), (200, OFF)]);
        let streams = Streams::new(&Connection::in_process(&Settings::local(""), told.clone(), UnixMillis(0)));
        let info = streams.info().await.unwrap();
        assert_eq!((info.label.as_str(), info.created), ("2026-11-27T08:00:00.123", UnixMillis(2_000)));
        assert_eq!(streams.shards(&info.label).await.unwrap(), []);
        for asked in [1, 3] {
            assert_eq!(told.asked()[asked]["StreamArn"], "arn:table/likes/stream/2026-11-27T08:00:00.123");
        }
        let named = streams.other_label().await.unwrap().unwrap();
        assert!(named.ends_with(".123, which is used, and its label is 2026-11-27T08:00:00.124"), "{named}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_is_told_a_sequence_number_with_as_many_digits_as_it_writes() {
        let told = Told::new(&[(200, TABLE), (200, STREAM), (200, r#"{"ShardIterator":"i"}"#)]);
        let streams = Streams::new(&Connection::in_process(&Settings::local(""), told.clone(), UnixMillis(0)));
        let label = "s-1".into();
        let shards = streams.shards(&label).await.unwrap();
        let position = Position::After("0000000000000000000000034".parse().unwrap());
        streams.iterator(&label, &shards[0].id, position).await.unwrap();
        assert_eq!(told.asked()[2]["SequenceNumber"], "0000000000000000000000034");
    }
}
