//! Tests of whole pipelines: attacks on real processes, the simulation, fuzzed and bad input, and the cost without
//! faults. All are in one binary, since cargo runs test binaries one after the other: campaigns mostly wait for
//! processes, and the simulation uses the processors meanwhile.

#![cfg(test)]

mod bad_input;
mod campaigns;
mod cost;
mod fuzz;
mod simulation;
