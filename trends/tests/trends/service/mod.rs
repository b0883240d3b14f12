//! Tests the service that makes lists of what is trending, in this process under paused time, and as a process over
//! librdkafka's Kafka and the emulator.

mod component;
mod process;
mod stage;
