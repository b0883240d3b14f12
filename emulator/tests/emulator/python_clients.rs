//! The binary under boto3 and the `aws` command, unmodified: runs the Python contract where Python has boto3.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running binary, killed if it still runs at the end of the test.
struct Running {
    child: Child,
    endpoint: String,
}

impl Running {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally-emulator"));
        command.args(["--port", "0", "--control", "--read-lag", "0ms"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let endpoint = line.trim_end().strip_prefix("listening on ").expect("the first line says where").to_owned();
        Self { child, endpoint }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
#[ignore = "needs python3 with boto3; .ci/night runs it"]
fn boto3_and_the_aws_command_work_unmodified_and_see_every_limit() {
    let running = Running::start();
    let script = "tests/boto3_contract.py";
    let status = Command::new("python3").args([script, &running.endpoint]).status().unwrap();
    assert!(status.success(), "a rule of the contract is broken: {status}");
}
