//! Tests of the whole streamer: relay and fold in one process under paused time, over the emulator and a Kafka in
//! memory; and as processes of their own.

#![cfg(test)]

mod log;
mod processes;
mod regions;
mod started;
mod tables;
