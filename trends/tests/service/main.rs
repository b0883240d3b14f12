//! The service, over the in-memory twins under paused time, and as a process over the Kafka of librdkafka and the emulator.

#[cfg(test)]
mod component;
#[cfg(test)]
mod process;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod workers;
