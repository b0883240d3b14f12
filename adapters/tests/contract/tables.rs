//! The creation of the tables, and the check at the start of a process.

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
