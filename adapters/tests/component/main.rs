//! Tests of the stores, which read and write Tally's DynamoDB tables, over the in-process emulator: the effect of each
//! write, of a repetition or late copy of it, and of failed requests.

#![cfg(test)]

mod changes;
mod claims;
mod counters;
mod deployment;
mod registers;
mod rows;
mod tables;
mod tombstones;
