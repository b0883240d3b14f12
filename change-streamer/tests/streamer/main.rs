//! The streamer as a whole. In one process and under paused time: over the in-memory twins for each rule, over the emulator
//! through the real SDK for everything together. And as processes of their own.

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
mod log;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod milestones;
#[cfg(test)]
mod processes;
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
