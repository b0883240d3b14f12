//! Small worlds around the machines and decisions that ship, walked exhaustively.
//!
//! Each world obeys every rule of the design; each of its mutants breaks exactly one, and the walk has to find out.

mod applying;
mod audit;
mod cached;
mod counters;
mod counts;
mod fence;
mod homes;
mod honest;
mod honesty;
mod item;
mod lanes;
mod late;
mod ledger;
mod milestone;
mod relay;
mod row_key;
mod shards;
mod suspect;
mod watermark;
mod window;
