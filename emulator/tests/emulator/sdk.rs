//! The real SDK against the emulator: in process under paused time, with every fault, and over HTTP.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, KeysAndAttributes, Put, PutRequest,
    ScalarAttributeType, StreamSpecification, StreamViewType, TransactWriteItem, WriteRequest,
};
use aws_sdk_dynamodb::{Client, Config as ClientConfig};
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use tally_emulator::{Config, Emulator, Fault, Rule};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const TABLE: &str = "counts";

/// A client that does not repeat what failed.
pub(crate) fn client_config() -> aws_sdk_dynamodb::config::Builder {
    ClientConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("any", "any", None, None, "test"))
        .endpoint_url("http://emulator")
        .retry_config(RetryConfig::disabled())
}

/// An emulator with one table, and a client that does not repeat what failed.
async fn started(config: Config) -> (Emulator, Client) {
    let emulator = Emulator::new(config);
    let client = Client::from_conf(client_config().http_client(emulator.http_client()).build());
    create(&client).await;
    (emulator, client)
}

async fn create(client: &Client) {
    let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewAndOldImages);
    client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(
            AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S).build().unwrap(),
        )
        .key_schema(KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap())
        .stream_specification(stream.build().unwrap())
        .send()
        .await
        .unwrap();
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

async fn add(client: &Client, id: &str) -> Result<(), String> {
    let update = client
        .update_item()
        .table_name(TABLE)
        .key("id", text(id))
        .update_expression("ADD n :one")
        .expression_attribute_values(":one", AttributeValue::N("1".into()));
    match update.send().await {
        Ok(_) => Ok(()),
        Err(SdkError::DispatchFailure(failure)) => {
            Err(if failure.is_timeout() { "timeout" } else { "broken" }.to_owned())
        }
        Err(SdkError::TimeoutError(_)) => Err("timeout".to_owned()),
        Err(error) => Err(error.code().unwrap_or("unknown").to_owned()),
    }
}

/// The count of an item, now.
async fn count(client: &Client, id: &str) -> u32 {
    let got = client.get_item().table_name(TABLE).key("id", text(id)).consistent_read(true).send().await.unwrap();
    got.item().map_or(0, |item| item["n"].as_n().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reply_was_carried_out() {
    let (emulator, client) = started(Config::default()).await;
    emulator.set_faults(vec![Rule::new(Fault::DropReply).on("UpdateItem").table(TABLE).nth(2)]);
    assert_eq!(add(&client, "a").await, Ok(()));
    assert_eq!(add(&client, "a").await, Err("broken".into()));
    assert_eq!(count(&client, "a").await, 2);
    assert_eq!(emulator.stats().fired("drop_reply"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ghost_is_carried_out_after_its_client_gave_up() {
    let (emulator, client) = started(Config::default()).await;
    let ghost = Fault::Ghost { max_delay_ms: 300_000, hang_ms: 0 };
    emulator.set_faults(vec![Rule::new(ghost).on("UpdateItem").calls(1, 3)]);
    for _ in 0..3 {
        assert_eq!(add(&client, "a").await, Err("broken".into()));
    }
    assert_eq!((count(&client, "a").await, emulator.stats().ghosts_pending), (0, 3));
    assert_eq!(add(&client, "a").await, Ok(()));
    assert_eq!(count(&client, "a").await, 1);
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(count(&client, "a").await, 4);
    assert_eq!((emulator.stats().ghosts_pending, emulator.stats().ghosts_applied), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends_with_the_clients_own_timeout() {
    let emulator = Emulator::new(Config::default());
    let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_secs(3)).build();
    let config = client_config().timeout_config(timeouts).http_client(emulator.http_client());
    let client = Client::from_conf(config.build());
    create(&client).await;
    let ghost = Fault::Ghost { max_delay_ms: 60_000, hang_ms: 600_000 };
    emulator.set_faults(vec![Rule::new(ghost).on("UpdateItem").nth(1)]);
    let began = tokio::time::Instant::now();
    assert_eq!(add(&client, "a").await, Err("timeout".into()));
    assert_eq!(began.elapsed().as_secs(), 3);
    emulator.advance_clock(Duration::from_secs(60));
    assert_eq!(count(&client, "a").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_loses_everything_for_its_time() {
    let (emulator, client) = started(Config::default()).await;
    emulator.set_faults(vec![Rule::new(Fault::Outage).lasting(Duration::from_secs(60))]);
    assert_eq!(add(&client, "a").await, Err("broken".into()));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(add(&client, "a").await, Ok(()));
    assert_eq!(count(&client, "a").await, 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_change_nothing_and_an_internal_error_says_nothing() {
    let (emulator, client) = started(Config::default()).await;
    emulator.set_faults(vec![
        Rule::new(Fault::Throttle).on("UpdateItem").nth(1),
        // Each rule counts the calls it sees, also those that another rule strikes.
        Rule::new(Fault::Conflict).on("UpdateItem").nth(2),
        Rule::new(Fault::InternalError { applied: Some(true) }).on("UpdateItem").nth(3),
        Rule::new(Fault::InternalError { applied: Some(false) }).on("UpdateItem").nth(4),
    ]);
    let expected = [
        ("ProvisionedThroughputExceededException", 0),
        ("TransactionConflictException", 0),
        ("InternalServerError", 1),
        ("InternalServerError", 1),
    ];
    for (code, after) in expected {
        assert_eq!(add(&client, "a").await, Err(code.into()));
        assert_eq!(count(&client, "a").await, after, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_cancelled_with_the_faults_own_reason() {
    let (emulator, client) = started(Config::default()).await;
    for (fault, code) in [(Fault::Throttle, "ThrottlingError"), (Fault::Conflict, "TransactionConflict")] {
        emulator.set_faults(vec![Rule::new(fault).on("TransactWriteItems").nth(1)]);
        let puts = (0..5).map(|n| {
            let put = Put::builder().table_name(TABLE).item("id", text(&format!("{code}{n}"))).build().unwrap();
            TransactWriteItem::builder().put(put).build()
        });
        let request = client.transact_write_items().set_transact_items(Some(puts.collect()));
        let error = request.clone().send().await.unwrap_err().into_service_error();
        let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else { panic!("{error}") };
        let codes: Vec<_> = cancelled.cancellation_reasons().iter().map(|reason| reason.code().unwrap()).collect();
        assert_eq!(codes.len(), 5);
        assert_eq!(codes.iter().filter(|given| **given == code).count(), 1);
        assert_eq!(codes.iter().filter(|given| **given == "None").count(), 4);
        request.send().await.unwrap();
    }
    assert_eq!(emulator.stats().tables[TABLE].items, 10);
}

#[tokio::test(start_paused = true)]
async fn a_batch_returns_what_it_did_not_do() {
    let (emulator, client) = started(Config::default()).await;
    emulator.set_faults(vec![Rule::new(Fault::Unprocessed).calls(1, 4)]);
    let put = |n: u32| {
        WriteRequest::builder()
            .put_request(PutRequest::builder().item("id", text(&n.to_string())).build().unwrap())
            .build()
    };
    let mut left = HashMap::from([(TABLE.to_owned(), (0..25).map(put).collect::<Vec<_>>())]);
    let mut rounds = 0;
    while !left.is_empty() {
        let answer = client.batch_write_item().set_request_items(Some(left)).send().await.unwrap();
        left = answer.unprocessed_items().cloned().unwrap_or_default();
        rounds += 1;
    }
    assert!(rounds > 1);
    assert_eq!(emulator.stats().tables[TABLE].items, 25);
    emulator.set_faults(vec![Rule::new(Fault::Unprocessed).nth(1)]);
    let keys = (0..25).map(|n| HashMap::from([("id".to_owned(), text(&n.to_string()))])).collect();
    let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build().unwrap();
    let mut left = HashMap::from([(TABLE.to_owned(), keys)]);
    let mut found = 0;
    while !left.is_empty() {
        let answer = client.batch_get_item().set_request_items(Some(left)).send().await.unwrap();
        found += answer.responses().unwrap().values().map(Vec::len).sum::<usize>();
        left = answer.unprocessed_keys().cloned().unwrap_or_default();
    }
    assert_eq!(found, 25);
}

#[tokio::test(start_paused = true)]
async fn latency_passes_on_tokios_clock() {
    let (emulator, client) = started(Config::default()).await;
    emulator.set_faults(vec![Rule::new(Fault::Latency { min_ms: 700, max_ms: 900 }).on("UpdateItem")]);
    let began = tokio::time::Instant::now();
    assert_eq!(add(&client, "a").await, Ok(()));
    let took = began.elapsed();
    assert!((700..=901).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_given_up_on_its_way_arrives_all_the_same() {
    let (emulator, client) = started(Config::default()).await;
    let latency = Fault::Latency { min_ms: 4_000, max_ms: 4_000 };
    emulator.set_faults(vec![Rule::new(latency).on("UpdateItem").nth(1)]);
    let gave_up = tokio::time::timeout(Duration::from_millis(10), add(&client, "a")).await;
    assert!(gave_up.is_err());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(count(&client, "a").await, 1);
    assert_eq!(emulator.stats().ghosts_applied, 1);
}

#[tokio::test(start_paused = true)]
async fn the_sdks_own_retries_pass_faults_by_seed() {
    let emulator = Emulator::new(Config { seed: 3, ..Config::default() });
    let retries = RetryConfig::standard().with_max_attempts(20);
    let client = Client::from_conf(client_config().retry_config(retries).http_client(emulator.http_client()).build());
    create(&client).await;
    emulator.set_faults(vec![Rule::new(Fault::Throttle).on("UpdateItem").chance(0.3)]);
    for _ in 0..50 {
        assert_eq!(add(&client, "a").await, Ok(()));
    }
    emulator.set_faults(Vec::new());
    assert_eq!(count(&client, "a").await, 50);
    assert!(emulator.stats().fired("throttle") > 5);
}

#[tokio::test]
async fn over_http_the_sdk_writes_reads_and_follows_a_split() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let emulator = Emulator::new(Config::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = emulator.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let stop = async move { drop(stopped.await) };
        server.serve(listener, stop).await.unwrap();
    });

    let client = Client::from_conf(client_config().endpoint_url(&endpoint).build());
    create(&client).await;
    for n in 0..100 {
        assert_eq!(add(&client, &n.to_string()).await, Ok(()));
        if n == 50 {
            emulator.split_shard(TABLE, None, None).unwrap();
        }
    }
    let described = client.describe_table().table_name(TABLE).send().await.unwrap();
    let arn = described.table().unwrap().latest_stream_arn().unwrap().to_owned();
    let streams = aws_sdk_dynamodbstreams::Client::from_conf(
        aws_sdk_dynamodbstreams::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("any", "any", None, None, "test"))
            .endpoint_url(&endpoint)
            .build(),
    );
    let stream = streams.describe_stream().stream_arn(&arn).send().await.unwrap();
    let shards = stream.stream_description().unwrap().shards().to_vec();
    assert_eq!(shards.len(), 6);
    let mut records = 0;
    for shard in shards {
        let iterator = streams
            .get_shard_iterator()
            .stream_arn(&arn)
            .shard_id(shard.shard_id().unwrap())
            .shard_iterator_type(ShardIteratorType::TrimHorizon);
        let iterator = iterator.send().await.unwrap().shard_iterator;
        let page = streams.get_records().set_shard_iterator(iterator).send().await.unwrap();
        records += page.records().len();
        let open = shard.sequence_number_range().unwrap().ending_sequence_number().is_none();
        assert_eq!(page.next_shard_iterator().is_some(), open);
    }
    assert_eq!(records, 100);
    let mut scan = client.scan().table_name(TABLE).consistent_read(true).limit(7).into_paginator().items().send();
    let mut items = 0;
    while let Some(item) = scan.next().await {
        item.unwrap();
        items += 1;
    }
    assert_eq!(items, 100);

    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), tasks.join_next()).await.unwrap();
    ended.unwrap().unwrap();
}
