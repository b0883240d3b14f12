// The process that makes lists of what is trending from the log of changes.
// The README is the documentation.

#![doc = include_str!("../README.md")]

mod app;
mod args;
mod board;
mod cells;
mod certificate;
mod fold;
mod lists;
mod metrics;
mod names;
pub mod partition;
mod place;
mod shedding;
mod shelf;
mod window;
mod wire;
mod worker;

pub use app::{App, NamedReader, Ports};
pub use args::{Args, Rules, group_of};
use board::Board;
pub use board::{BoardRules, Ranked};
pub use certificate::{Claim, Evidence, Reason, certify};
pub use fold::{Fold, Place};
pub use lists::{List, merge};
pub use metrics::CATALOGUE;
pub use partition::Partition;
pub use shelf::{Shelf, Top};
pub use window::{BadWindow, Window, first_moment, next_moment};
pub use wire::{BadPublished, Published, Tick, Writer, Written, board_key, mark};
