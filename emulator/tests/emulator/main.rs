//! Tests the emulator from outside, by JSON, by the real SDKs and as a program, against the known behaviour of DynamoDB.

#[cfg(test)]
mod binary;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hot_keys;
#[cfg(test)]
mod latency;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod malformed;
#[cfg(test)]
mod partiql;
#[cfg(test)]
mod partiql_laws;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod python_clients;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod reader;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod restoring;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod updates;
