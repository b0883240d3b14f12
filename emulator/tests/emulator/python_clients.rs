//! Runs the contract tests in Python, with boto3 and the `aws` command, if Python has boto3.

use std::process::Command;

use crate::binary::Running;

#[tokio::test]
#[ignore = "needs python3 with boto3; .ci/night runs it"]
async fn boto3_and_the_aws_command_work_unmodified() {
    let running = Running::start(&["--control", "--read-lag", "0ms"]).await;
    let endpoint = format!("http://{}", running.address);
    let status = Command::new("python3").args(["tests/boto3_contract.py", &endpoint]).status().unwrap();
    assert!(status.success(), "a rule of the contract is broken: {status}");
}
