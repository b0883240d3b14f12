//! What every engine has to do: one suite for each store, run over the emulator in this process and over HTTP, and over any endpoint that `TALLY_CONTRACT_ENDPOINT` names. The
//! log's ports and the cache have suites and engines of their own.

#[cfg(test)]
mod config;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kafka;
#[cfg(test)]
mod likes;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod recounts;
#[cfg(test)]
mod redis;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tables;

/// Each suite on each engine, as a test of its own.
macro_rules! contract {
    ($($engine:ident),* => $suites:tt) => { $(contract!(@engine $engine $suites);)* };
    (@engine elsewhere [$($suite:ident),*]) => {
        mod elsewhere {
            $(
                #[tokio::test]
                #[ignore = "needs the engine that TALLY_CONTRACT_ENDPOINT names; localstack/engines-test runs it"]
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
