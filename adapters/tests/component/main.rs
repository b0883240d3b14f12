//! The stores over the in-process emulator: the effect of each write, of a repetition or late copy of it, and of failed
//! requests.

#[cfg(test)]
mod changes;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod counters;
#[cfg(test)]
mod deployment;
#[cfg(test)]
mod registers;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tombstones;
