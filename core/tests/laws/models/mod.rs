//! Small worlds around the core's real decision functions, walked exhaustively.
//!
//! Each world obeys every rule of the design; each of its mutants breaks exactly one, and the walk has to find out.

mod fence;
mod item;
mod row_key;
mod suspect;
mod watermark;
mod window;
