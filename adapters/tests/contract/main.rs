//! Tests that every engine does what the adapters rely on. Each suite about DynamoDB (rows, configuration, streams,
//! recounts) runs over the emulator in this process and over HTTP; with `--include-ignored` also over the endpoint that
//! `TALLY_CONTRACT_ENDPOINT` names. Kafka and the cache (`partitions`, `redis`) have their own suites and engines.
//! `faults` tests time limits and retries over the emulator alone.

#![cfg(test)]

mod config;
mod engine;
mod faults;
mod kafka;
mod likes;
mod partitions;
mod recounts;
mod redis;
mod streams;

/// Defines a test for each suite and engine.
macro_rules! contract {
    ($($engine:ident),* => $suites:tt) => { $(contract!(@engine $engine $suites);)* };
    (@engine elsewhere [$($suite:ident),*]) => {
        mod elsewhere {
            $(
                #[tokio::test]
                #[ignore = "needs the engine that TALLY_CONTRACT_ENDPOINT names; localstack/engines test runs it"]
                async fn $suite() {
                    crate::engine::elsewhere(crate::$suite::contract).await;
                }
            )*
        }
    };
    (@engine $engine:ident [$($suite:ident),*]) => {
        mod $engine {
            $(
                #[tokio::test]
                async fn $suite() {
                    crate::engine::$engine(crate::$suite::contract).await;
                }
            )*
        }
    };
}

contract!(emulator_in_process, emulator_over_http, elsewhere => [likes, config, streams, recounts]);
