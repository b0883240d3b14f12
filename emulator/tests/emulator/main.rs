//! Tests the emulator from outside, by JSON, by the real SDKs and as a program, against the known behaviour of DynamoDB.

#![cfg(test)]

mod binary;
mod faults;
mod hot_keys;
mod latency;
mod laws;
mod malformed;
mod partiql;
mod partiql_laws;
mod policies;
mod raw;
mod reader;
mod reads;
mod refusals;
mod restoring;
mod sdk;
mod streams;
mod updates;
