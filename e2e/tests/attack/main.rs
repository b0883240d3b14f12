//! The attack in its short form, and what of a whole pipeline needs no attack: what it costs, and what a version of before
//! left. One binary, because cargo runs one after the other: campaigns mostly wait for processes, and the simulation takes
//! the processor meanwhile.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod campaigns;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod deployment;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod simulation;
