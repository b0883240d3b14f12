// Puts Tally's words into requests to DynamoDB, Kafka and Redis, and their answers back.
// The README is the documentation.

#![doc = include_str!("../README.md")]

mod deployment;
pub mod dynamodb;
pub mod kafka;
pub mod memory;
pub mod redis;

pub use deployment::Deployment;

/// Runs `P`, a service over DynamoDB, as this process. Checks the AWS variables with its own settings.
pub fn run<P: tally_service::Program>() -> std::process::ExitCode {
    tally_service::run::<P>(dynamodb::environment)
}
