//! The checks of the tables when a process starts.

use tally_adapters::dynamodb::{check_tables, ensure_tables};
use tally_core::fault::Fault;

use crate::engine::in_process;

#[tokio::test]
async fn tables_are_created_once_and_then_pass_the_check() {
    let (_, connection) = in_process();
    let Err(Fault::Transient(message)) = check_tables(&connection).await else { panic!() };
    assert!(message.starts_with("likes: ResourceNotFoundException"), "{message}");
    for _ in 0..2 {
        ensure_tables(&connection).await.unwrap();
        check_tables(&connection).await.unwrap();
    }
}

#[tokio::test]
async fn no_process_creates_or_joins_a_deployment_whose_rows_have_no_configuration() {
    use aws_sdk_dynamodb::types::AttributeValue;
    use tally_adapters::Deployment;
    use tally_adapters::dynamodb::Checkpoints;
    use tally_service::{Exit, Host};

    let ((emulator, connection), host) = (in_process(), Host::new("test"));
    ensure_tables(&connection).await.unwrap();
    let checkpoints = Checkpoints::new(&connection);
    let deployment = Deployment { tables: &connection, shards: None };
    let client = raw(&emulator);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    client.put_item().table_name("likes").item("pk", text("p#3")).item("user_id", text("u")).send().await.unwrap();
    for refused in [deployment.create(&host).await, deployment.join(&host).await] {
        let error = refused.unwrap_err();
        assert_eq!(Exit::after(&error), Exit::CONFIG, "only an operator can say what to do");
        let error = format!("{error:#}");
        assert!(error.contains("the likes table has rows, and the checkpoints table has no `config`"), "{error}");
    }
    assert_eq!(checkpoints.deployed().await, Ok(None), "nothing was created over them");
    client.delete_item().table_name("likes").key("pk", text("p#3")).key("user_id", text("u")).send().await.unwrap();
    deployment.create(&host).await.unwrap();
}

/// A raw client for any table.
fn raw(emulator: &tally_emulator::Emulator) -> aws_sdk_dynamodb::Client {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};

    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url("http://in-process.invalid")
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(emulator.http_client());
    aws_sdk_dynamodb::Client::from_conf(config.build())
}
