#![doc = include_str!("../README.md")]

mod board;
mod certificate;
mod fold;
mod lists;
mod window;

pub use board::{Board, BoardRules, Ranked};
pub use certificate::{Claim, Evidence, Reason, certify};
pub use fold::{Fold, Place};
pub use lists::{Latest, List, NotOne, merge};
pub use window::{BadWindow, Window, next_moment};
