// The process that writes events from Kafka as rows of the table of likes.
// The README is the documentation.

#![doc = include_str!("../README.md")]

mod app;
mod args;
pub mod letter;
pub mod metrics;
mod misrouted;
mod partition;
mod trace;

pub use app::{App, OpenTopic, Ports, replay_group};
pub use args::{Args, ReadSettings, TopicArgs, group_of, letters_of};
