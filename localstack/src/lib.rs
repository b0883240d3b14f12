// The whole pipeline in one process, for a laptop, with a load and a page to watch and break things.
// The README is the documentation.

#![doc = include_str!("../README.md")]

mod app;
mod args;
mod cache;
mod chaos;
mod counters;
mod engine;
mod gate;
mod ledger;
mod load;
mod local;
mod names;
mod observe;
pub mod oracle;
pub mod page;
mod probe;
mod regions;
mod screen;
mod services;
mod stack;
mod verify;

pub use app::App;
pub use args::Args;
