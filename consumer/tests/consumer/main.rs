//! Tests of the whole consumer: over in-memory engines under paused time, and as a process.

#![cfg(test)]

mod component;
mod process;
