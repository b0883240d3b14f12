//! What a process checks of its tables before it starts.

use tally_adapters::dynamodb::{check_tables, ensure_tables};
use tally_core::fault::Fault;

use crate::engine::in_process;

#[tokio::test]
async fn tables_are_created_once_and_then_pass_the_check() {
    let (_, connection) = in_process();
    let Err(Fault::Fatal(message)) = check_tables(&connection).await else { panic!() };
    assert!(message.starts_with("likes: ResourceNotFoundException"), "{message}");
    for _ in 0..2 {
        ensure_tables(&connection).await.unwrap();
        check_tables(&connection).await.unwrap();
    }
}

#[cfg(feature = "args")]
#[tokio::test]
async fn no_process_creates_or_joins_a_deployment_whose_tables_do_not_fit() {
    use std::sync::Arc;

    use tally_adapters::Deployment;
    use tally_adapters::dynamodb::Checkpoints;
    use tally_service::Host;

    let ((_, connection), host) = (in_process(), Host::new("test"));
    let checkpoints = Checkpoints::new(&connection);
    let checkpoints = Arc::new(checkpoints);
    let deployment = Deployment { tables: Some(&connection), checkpoints, shards: None };
    for refused in [deployment.clone().create(&host).await, deployment.clone().join(&host).await] {
        let error = format!("{:#}", refused.unwrap_err());
        assert!(error.starts_with("cannot use tables: likes: ResourceNotFoundException"), "{error}");
    }
    ensure_tables(&connection).await.unwrap();
    let created = deployment.clone().create(&host).await.unwrap();
    assert_eq!(deployment.join(&host).await.unwrap(), created);
}
