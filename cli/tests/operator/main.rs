//! Tests `tally`, the operators' command: runs it as a process, verb by verb, over DynamoDB's emulator and librdkafka's
//! in-process cluster (`stage`).

#![cfg(test)]

mod adopting;
mod changes;
mod posts;
mod preparing;
mod recounting;
mod refused;
mod regions;
mod restoring;
mod stage;
mod status;
mod topics;
mod verifying;
