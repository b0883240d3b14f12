//! The operations that read change streams: ListStreams, DescribeStream, GetShardIterator and GetRecords.

use serde::Deserialize;
use xxhash_rust::xxh64::xxh64;

use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::iterator::Position;
use crate::engine::shard::{Record, Shard, key_text};
use crate::engine::stream::Stream;
use crate::error::{Error, Kind};
use crate::json::Writer;
use crate::limits::{ARN_CHARS, PAGE_BYTES, RECORDS, SHARD_ID_CHARS, SHARDS_PAGE, STREAMS_PAGE};

use super::describe::{key_schema, seconds};
use super::params::{constraint, one_of, page_limit, required};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListStreams {
    table_name: Option<String>,
    limit: Option<i64>,
    exclusive_start_stream_arn: Option<String>,
}

/// Lists the streams.
pub(super) fn list(request: ListStreams, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let limit = page_limit(request.limit, STREAMS_PAGE)?;
    let (table, start) = (request.table_name, request.exclusive_start_stream_arn);
    let wanted = |stream: &&Stream| table.as_ref().is_none_or(|table| *table == stream.table);
    let mut streams: Vec<&Stream> = engine.streams().filter(wanted).collect();
    streams.sort_unstable_by(|a, b| a.arn.cmp(&b.arn));
    if let Some(start) = &start {
        check_arn("exclusiveStartStreamArn", start)?;
        streams.retain(|stream| stream.arn > *start);
    }
    let (page, more) = streams.split_at(streams.len().min(limit));
    Ok(Writer::document(|out| {
        out.key("Streams").array(|out| {
            for stream in page {
                out.object(|out| write_stream_names(stream, out));
            }
        });
        if let (false, Some(last)) = (more.is_empty(), page.last()) {
            out.key("LastEvaluatedStreamArn").string(&last.arn);
        }
    }))
}

fn write_stream_names(stream: &Stream, out: &mut Writer) {
    out.key("StreamArn").string(&stream.arn);
    out.key("TableName").string(&stream.table);
    out.key("StreamLabel").string(&stream.label);
}

/// The stream of a request.
fn named_stream(arn: Option<String>, engine: &Engine) -> Result<&Stream, Error> {
    let arn = required("streamArn", arn)?;
    check_arn("streamArn", &arn)?;
    engine.stream(&arn)
}

/// Checks that a text can be the ARN of a stream.
fn check_arn(parameter: &str, arn: &str) -> Result<(), Error> {
    if !ARN_CHARS.contains(&arn.len()) {
        let rule = format!(
            "Member must have length less than or equal to {}, Member must have length greater than or equal to {}",
            ARN_CHARS.end(),
            ARN_CHARS.start()
        );
        return Err(constraint(parameter, arn, &rule));
    }
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let ["arn", "aws", "dynamodb", region, account, resource] = parts[..] else { return Err(malformed_arn()) };
    let ["table", table, "stream", label] = resource.split('/').collect::<Vec<_>>()[..] else {
        return Err(malformed_arn());
    };
    if [region, account, table, label].contains(&"") { Err(malformed_arn()) } else { Ok(()) }
}

fn malformed_arn() -> Error {
    Error::validation("Invalid StreamArn")
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ShardFilter {
    #[serde(rename = "Type")]
    filter_type: Option<String>,
    shard_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DescribeStream {
    stream_arn: Option<String>,
    limit: Option<i64>,
    exclusive_start_shard_id: Option<String>,
    shard_filter: Option<ShardFilter>,
}

/// Describes a stream and its shards.
pub(super) fn describe(request: DescribeStream, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let limit = page_limit(request.limit, SHARDS_PAGE)?;
    let stream = named_stream(request.stream_arn, engine)?;
    let parent = request.shard_filter.map(|filter| filter.parent()).transpose()?;
    let start = request.exclusive_start_shard_id;
    let shards: Vec<&Shard> = stream
        .shards
        .values()
        .filter(|shard| start.as_ref().is_none_or(|start| shard.id > *start))
        .filter(|shard| parent.is_none() || shard.parent == parent)
        .take(limit + 1)
        .collect();
    let page = &shards[..shards.len().min(limit)];
    Ok(Writer::document(|out| {
        out.key("StreamDescription").object(|out| {
            write_stream_names(stream, out);
            out.key("StreamStatus").string(if stream.disabled.is_some() { "DISABLED" } else { "ENABLED" });
            out.key("StreamViewType").string(stream.view);
            out.key("CreationRequestDateTime").plain(seconds(stream.created));
            out.key("KeySchema").serialize(&key_schema(&stream.schema.hash, stream.schema.range.as_ref()));
            out.key("Shards").array(|out| page.iter().for_each(|shard| write_shard(stream, shard, out)));
            if let (true, Some(last)) = (shards.len() > limit, page.last()) {
                out.key("LastEvaluatedShardId").string(&last.id);
            }
        });
    }))
}

impl ShardFilter {
    /// The parent whose children are asked for.
    fn parent(self) -> Result<String, Error> {
        let filter_type = required("shardFilter.type", self.filter_type)?;
        one_of("shardFilter.type", Some(&filter_type), &[("CHILD_SHARDS", ())])?;
        let shard_id = required("shardFilter.shardId", self.shard_id)?;
        if SHARD_ID_CHARS.contains(&shard_id.len()) && shard_id.starts_with("shardId-") {
            return Ok(shard_id);
        }
        let rule = "Member must satisfy regular expression pattern: shardId-[0-9]{20}-[0-9a-f]{8,36}";
        Err(constraint("shardFilter.shardId", &shard_id, rule))
    }
}

fn write_shard(stream: &Stream, shard: &Shard, out: &mut Writer) {
    out.object(|out| {
        out.key("ShardId").string(&shard.id);
        if let Some(parent) = &shard.parent {
            out.key("ParentShardId").string(parent);
        }
        out.key("SequenceNumberRange").object(|out| {
            out.key("StartingSequenceNumber").string(&stream.sequence_text(shard.start));
            if let Some(end) = shard.end {
                out.key("EndingSequenceNumber").string(&stream.sequence_text(end.sequence));
            }
        });
    });
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GetShardIterator {
    stream_arn: Option<String>,
    shard_id: Option<String>,
    shard_iterator_type: Option<String>,
    sequence_number: Option<String>,
}

/// Returns an iterator for a position in a shard.
pub(super) fn get_iterator(request: GetShardIterator, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let now = engine.now;
    let stream = named_stream(request.stream_arn, engine)?;
    let shard_id = required("shardId", request.shard_id)?;
    let shard = stream.shards.get(&shard_id).ok_or_else(|| {
        let place = format!("Shard: {shard_id} in Stream: {} not found", stream.arn);
        Error::not_found(format!("Requested resource not found: {place}"))
    })?;
    let given = required("shardIteratorType", request.shard_iterator_type)?;
    let types = ["TRIM_HORIZON", "LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"].map(|word| (word, word));
    let after = match (one_of("shardIteratorType", Some(&given), &types)?, request.sequence_number) {
        ("TRIM_HORIZON", None) => shard.trimmed,
        ("LATEST", None) => latest_visible(shard, now),
        ("AT_SEQUENCE_NUMBER", Some(text)) => named_sequence(stream, shard, &text)?.saturating_sub(1),
        ("AFTER_SEQUENCE_NUMBER", Some(text)) => named_sequence(stream, shard, &text)?,
        (word, given) => {
            let rule = if given.is_none() { "must" } else { "cannot" };
            let refused = format!("A SequenceNumber {rule} be specified with ShardIteratorType {word}");
            return Err(Error::validation(refused));
        }
    };
    let position = Position { stream: stream.arn.clone(), shard: shard_id, after };
    Ok(Writer::document(|out| out.key("ShardIterator").string(&position.token(now))))
}

/// The sequence number of the newest visible record of this shard.
fn latest_visible(shard: &Shard, now: u64) -> u64 {
    shard.log.iter().rev().find(|record| record.visible <= now).map_or(shard.trimmed, |record| record.sequence)
}

/// Parses a sequence number, which must be in the range of this shard and not trimmed.
fn named_sequence(stream: &Stream, shard: &Shard, text: &str) -> Result<u64, Error> {
    let sequence = stream.sequence_of(text).filter(|sequence| (shard.start..=shard.last_sequence()).contains(sequence));
    let sequence = sequence.ok_or_else(|| {
        Error::validation(format!("Invalid SequenceNumber: {text} is not in the range of shard {}", shard.id))
    })?;
    if sequence <= shard.trimmed {
        return Err(trimmed());
    }
    Ok(sequence)
}

fn trimmed() -> Error {
    Error::new(
        Kind::TrimmedDataAccess,
        "The operation attempted to read past the oldest stream record in a shard. \
         The requested records are beyond the retention period.",
    )
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GetRecords {
    shard_iterator: Option<String>,
    limit: Option<i64>,
}

/// Reads records from a position.
pub(super) fn get_records(request: GetRecords, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let now = engine.now;
    let limit = page_limit(request.limit, RECORDS)?;
    let position = Position::parse(&required("shardIterator", request.shard_iterator)?, now)?;
    let stream = engine.stream(&position.stream)?;
    let shard = stream.shards.get(&position.shard).ok_or_else(trimmed)?;
    if position.after < shard.trimmed {
        return Err(trimmed());
    }
    let region = &engine.config.region;
    let mut bytes = 0;
    let mut after = position.after;
    Ok(Writer::document(|out| {
        out.key("Records").array(|out| {
            let visible = shard.after(after).take(limit).take_while(|record| record.visible <= now);
            for record in visible {
                let size = record_size(record, stream);
                if bytes > 0 && bytes + size > PAGE_BYTES {
                    break;
                }
                bytes += size;
                after = record.sequence;
                write_record(record, stream, size, region, out);
            }
        });
        let finished = !shard.is_open() && shard.log.back().is_none_or(|last| last.sequence <= after);
        if !finished {
            let next = Position { after, ..position };
            out.key("NextShardIterator").string(&next.token(now));
        }
    }))
}

/// The images of a record that the stream's view contains.
fn shown<'a>(record: &'a Record, stream: &Stream) -> [(&'static str, Option<&'a Image>); 2] {
    [
        ("OldImage", record.old.as_ref().filter(|_| matches!(stream.view, "OLD_IMAGE" | "NEW_AND_OLD_IMAGES"))),
        ("NewImage", record.new.as_ref().filter(|_| matches!(stream.view, "NEW_IMAGE" | "NEW_AND_OLD_IMAGES"))),
    ]
}

fn record_size(record: &Record, stream: &Stream) -> usize {
    let keys = key_text(record).map_or(0, <[u8]>::len);
    keys + shown(record, stream).iter().filter_map(|(_, image)| *image).map(Image::size).sum::<usize>()
}

fn write_record(record: &Record, stream: &Stream, size: usize, region: &str, out: &mut Writer) {
    let name = match (&record.old, &record.new) {
        (None, _) => "INSERT",
        (Some(_), Some(_)) => "MODIFY",
        (Some(_), None) => "REMOVE",
    };
    let sequence = stream.sequence_text(record.sequence);
    let seed = xxh64(stream.arn.as_bytes(), 0);
    out.object(|out| {
        let id = (xxh64(sequence.as_bytes(), seed), xxh64(sequence.as_bytes(), !seed));
        out.key("eventID").string(&format!("{:016x}{:016x}", id.0, id.1));
        out.key("eventName").string(name);
        out.key("eventVersion").string("1.1");
        out.key("eventSource").string("aws:dynamodb");
        out.key("awsRegion").string(region);
        out.key("dynamodb").object(|out| {
            // DynamoDB returns whole seconds, so records cannot be ordered by this.
            out.key("ApproximateCreationDateTime").plain(record.created / 1000);
            out.key("Keys").members(key_text(record).unwrap_or_default());
            for (member, image) in shown(record, stream) {
                image.iter().for_each(|image| out.key(member).image(image));
            }
            out.key("SequenceNumber").string(&sequence);
            out.key("SizeBytes").plain(size);
            out.key("StreamViewType").string(stream.view);
        });
        if record.by_service {
            out.key("userIdentity").object(|out| {
                out.key("PrincipalId").string("dynamodb.amazonaws.com");
                out.key("Type").string("Service");
            });
        }
    });
}
