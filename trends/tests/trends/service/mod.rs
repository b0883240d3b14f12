//! The service, over the in-memory twins under paused time, and as a process over the Kafka of librdkafka and the emulator.

mod component;
mod process;
mod restarts;
mod stage;
mod workers;
