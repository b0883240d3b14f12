//! The attack in its short form, and whole pipelines without one: what they cost. They are one binary, because cargo runs test binaries one after the other: campaigns mostly wait for processes, and
//! the simulation takes the processor meanwhile.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod campaigns;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod simulation;
