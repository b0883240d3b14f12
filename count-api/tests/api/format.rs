//! A deployment in a format that the API does not know: it does not start there, and stops when the format changes.

use crate::engines::Tables;
use crate::process::Process;

const NAMED: &str = "the deployment is written in format 7, this build knows 2: see docs/operate.md";

/// The request that has the deployment state that it is written in a format.
macro_rules! write_in {
    ($format:literal) => {
        concat!(
            r#"{"TableName":"checkpoints","Key":{"id":{"S":"config"}},"UpdateExpression":"SET #f=:f","#,
            r##""ExpressionAttributeNames":{"#f":"format"},"ExpressionAttributeValues":{":f":{"S":""##,
            $format,
            r#""}}}"#
        )
    };
}

/// How it ended, and how many lines name the format.
async fn ended(process: Process) -> (Option<i32>, usize) {
    (process.code().await, process.lines().iter().filter(|line| line.contains(NAMED)).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_format_that_is_not_known_ends_the_start_and_one_that_comes_later_ends_the_process() {
    let tables = Tables::start().await;
    let running = Process::start(&tables, &[]).await;
    tables.call("UpdateItem", write_in!("7")).await;
    assert_eq!(ended(running).await, (Some(78), 1));
    assert_eq!(ended(Process::launch(&tables, &[])).await, (Some(78), 1));
    tables.call("UpdateItem", write_in!("2")).await;
    assert_eq!(Process::start(&tables, &[]).await.end().await, Some(0));
}
