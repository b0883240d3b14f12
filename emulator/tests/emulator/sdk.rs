//! Tests what the real AWS SDK makes of the emulator, in process and under paused time: a closed connection is an
//! error, a silent one a time-out.

use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodb::{Client, Config as ClientConfig};
use tally_emulator::{Config, Fault, Rule};

use crate::raw::{items, with_rows};

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
