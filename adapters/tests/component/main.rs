//! The stores over the emulator in this process: what each write leaves, what a repetition or a late copy of it changes, and what
//! becomes of it when a request goes wrong.

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
