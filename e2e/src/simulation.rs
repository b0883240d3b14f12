//! The whole pipeline in one process and one thread under paused time, every fault drawn from a seed, and the laws held
//! against it: on the way, at quiescence, and over everything that recounts have said.
//!
//! The services, their adapters and the SDK are the real ones; below them are the emulator without sockets and the log's
//! in-memory twin. A mutant is the same pipeline with one rule broken at a port: the services carry no switch.

mod archive;
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
mod kafka;
pub(crate) mod laws;
mod lists;
mod milestones;
pub(crate) mod mix;
mod moves;
mod mutant;
mod operator;
mod outcome;
mod ports;
mod profile;
mod readers;
mod schedule;
mod trace;
mod wire;
mod world;

pub mod command;

pub use coverage::{kinds, kinds_of_lists};
pub use mutant::Mutant;
pub use outcome::Outcome;
pub use schedule::{Order, run};
