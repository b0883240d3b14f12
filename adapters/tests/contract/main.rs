//! Tests that every engine does what the adapters rely on: one suite for each store of DynamoDB, over the emulator in
//! this process, over HTTP, and over the endpoint in `TALLY_CONTRACT_ENDPOINT`, if there is one. Kafka and the cache
//! have their own suites and engines.

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
