//! The consumer as a whole: over in-memory twins under paused time, and as a process of its own.

#[cfg(test)]
mod component;
#[cfg(test)]
mod process;
