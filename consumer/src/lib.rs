#![doc = include_str!("../README.md")]

mod app;
mod args;
mod config;
pub mod counters;
pub mod dlq;
mod draw;
mod fences;
mod homes;
mod identity;
mod import;
mod lag;
mod letter;
mod membership;
pub mod metrics;
mod misrouted;
mod print;
mod trace;
mod worker;

pub use app::{App, OpenTopic, Ports, replay_group};
pub use args::{Args, Command, MoveArgs, ResetTo, SumsAnew};
pub use config::{Config, Mode, ReadSettings, group_of};
pub use draw::{Draw, Drawn, Found, Verifier};
pub use fences::{Fences, Going, Move, Reset, Standing};
pub use import::{Format, Import, ImportArgs, ImportSettings, Imported, Source};
