//! The service, in process under paused time, and as a process over the Kafka of librdkafka and the emulator.

mod component;
mod process;
mod stage;
mod workers;
