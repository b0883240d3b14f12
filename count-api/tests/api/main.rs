//! Tests the API from outside: its routes over the emulator, its reads of counts, its process, and what attackers send.

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
mod live;
mod members;
mod milestones;
mod openapi;
mod process;
mod secrets;
mod top;
