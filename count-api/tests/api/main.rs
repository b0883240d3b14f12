//! Tests the API from outside, over HTTP: its routes over the emulator and a real Redis, under load and under attack.

#![cfg(test)]

mod attack;
mod contract;
mod counter_writes;
mod counters;
mod counts;
mod create;
mod drain;
mod gathering;
mod harness;
mod headers;
mod honesty;
mod http2;
mod kafka;
mod live;
mod members;
mod milestones;
mod openapi;
mod pipelined;
mod process;
mod secrets;
mod sum_policy;
mod top;
