//! Small worlds around the machines and decisions that ship, walked exhaustively.
//!
//! Each world obeys every rule of the design; each of its mutants breaks exactly one, and the walk has to find out.

mod cached;
mod cells;
mod counts;
mod honest;
mod regrown;
mod relay;
mod rows;
