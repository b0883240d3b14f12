//! The short forms of the campaigns, the lifecycle, the simulation and the fuzz targets, in one binary: campaigns mostly wait
//! for processes, and the simulation takes the processor meanwhile.

#[cfg(test)]
mod campaigns;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod simulation;
