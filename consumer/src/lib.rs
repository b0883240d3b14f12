#![doc = include_str!("../README.md")]

mod app;
mod args;
mod config;
mod dlq;
mod event;
mod fences;
mod lag;
mod letter;
mod membership;
pub mod metrics;
mod print;
mod trace;
mod worker;

pub use app::{App, OpenShelf, Ports};
pub use args::{Args, Command};
pub use config::{Action, Config, ReadSettings};
