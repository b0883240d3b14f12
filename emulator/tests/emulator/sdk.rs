//! The real SDK with the emulator: in process under paused time, and over HTTP.

use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodb::{Client, Config as ClientConfig};
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use tally_emulator::{Config, Fault, Rule};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::raw::{items, with_rows};
use crate::reader;

/// A client that does not retry.
fn client_config(endpoint: &str) -> Builder {
    ClientConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("any", "any", None, None, "test"))
        .endpoint_url(endpoint)
        .retry_config(RetryConfig::disabled())
}

/// Adds one. An error says whether it is a time-out.
async fn add(client: &Client, id: &str) -> Result<(), bool> {
    let update = client
        .update_item()
        .table_name("rows")
        .key("p", AttributeValue::S(id.to_owned()))
        .update_expression("ADD n :one")
        .expression_attribute_values(":one", AttributeValue::N("1".into()));
    update.send().await.map(drop).map_err(|error| match error {
        SdkError::DispatchFailure(failure) => failure.is_timeout(),
        error => matches!(error, SdkError::TimeoutError(_)),
    })
}

#[tokio::test(start_paused = true)]
async fn the_sdk_sees_a_closed_connection_as_an_error_and_a_silent_one_as_a_time_out() {
    let emulator = with_rows(Config::default(), &[("p", "S")]).await;
    let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_secs(3)).build();
    let config = client_config("http://emulator").timeout_config(timeouts).http_client(emulator.http_client());
    let client = Client::from_conf(config.build());
    for (hang_ms, is_timeout, seconds) in [(0, false, 0), (600_000, true, 3)] {
        emulator.set_faults(vec![Rule::new(Fault::Ghost { max_delay_ms: 60_000, hang_ms }).on("UpdateItem").nth(1)]);
        let began = tokio::time::Instant::now();
        assert_eq!(add(&client, "a").await, Err(is_timeout));
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
    emulator.advance_clock(Duration::from_secs(60));
    assert_eq!(items(&emulator, "rows").await[0]["n"]["N"], "2");
}

#[tokio::test]
async fn over_http_the_sdk_writes_reads_and_follows_a_split() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let emulator = with_rows(Config::default(), &[("p", "S")]).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = emulator.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { server.serve(listener, async move { drop(stopped.await) }).await.unwrap() });

    let client = Client::from_conf(client_config(&endpoint).build());
    for n in 0..100 {
        assert_eq!(add(&client, &n.to_string()).await, Ok(()));
        if n == 50 {
            emulator.split_shard("rows", None, None).unwrap();
        }
    }
    let streams = aws_sdk_dynamodbstreams::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("any", "any", None, None, "test"))
        .endpoint_url(&endpoint);
    let streams = aws_sdk_dynamodbstreams::Client::from_conf(streams.build());
    let arn = reader::stream_arn(&emulator, "rows").await;
    let stream = streams.describe_stream().stream_arn(&arn).send().await.unwrap();
    let shards = stream.stream_description().unwrap().shards().to_vec();
    assert_eq!(shards.len(), 6);
    let mut records = 0;
    for shard in shards {
        let iterator = streams.get_shard_iterator().stream_arn(&arn).set_shard_id(shard.shard_id);
        let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.unwrap();
        let page = streams.get_records().set_shard_iterator(iterator.shard_iterator).send().await.unwrap();
        records += page.records().len();
        let open = shard.sequence_number_range.unwrap().ending_sequence_number.is_none();
        assert_eq!(page.next_shard_iterator().is_some(), open);
    }
    assert_eq!(records, 100);

    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), tasks.join_next()).await.unwrap();
    ended.unwrap().unwrap();
}
