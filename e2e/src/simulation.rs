//! The whole pipeline in one process and one thread under paused time, every fault drawn from a seed, and the laws held
//! against it: on the way, at quiescence, and in every write of a counter.
//!
//! The services, their adapters and the SDK are the real ones; below them are the emulator without sockets and the log's
//! in-memory twin. A mutant is the same pipeline with one rule broken at a port: the services carry no switch.

mod cache;
pub(crate) mod chance;
pub(crate) mod clockwork;
mod course;
mod coverage;
mod door;
mod driver;
mod events;
mod fold;
mod gate;
pub(crate) mod history;
mod instance;
mod journal;
mod kafka;
pub(crate) mod laws;
mod lists;
pub(crate) mod mix;
mod mutant;
mod outcome;
mod ports;
mod profile;
mod readers;
mod registers;
mod schedule;
mod trace;
mod wire;
mod world;
mod writes;

pub mod command;

pub use coverage::{kinds, kinds_of_lists};
pub use mutant::Mutant;
pub use outcome::Outcome;
pub use schedule::{Order, run};
