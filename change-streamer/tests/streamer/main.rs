//! The streamer as a whole, in one process and under paused time: over the in-memory twins for each rule, over the
//! emulator through the real SDK for everything together.

#[cfg(test)]
mod acceptance;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod doctored;
#[cfg(test)]
mod holding;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod listings;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod milestones;
#[cfg(test)]
mod publishing;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod windows;
#[cfg(test)]
mod world;
