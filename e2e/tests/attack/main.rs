//! The short forms of every attack, in one binary: campaigns wait for processes most of the time, and schedules of the
//! simulation take the processor meanwhile.

#[cfg(test)]
mod campaigns;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod simulation;
