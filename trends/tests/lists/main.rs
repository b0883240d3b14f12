//! What is trending, held against every change there was.

#[cfg(test)]
mod laws;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod saved;
#[cfg(test)]
mod shedding;
#[cfg(test)]
mod world;
