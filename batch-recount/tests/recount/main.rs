//! Whole recounts beside the real change-streamer: over the in-memory twins and over the emulator under paused time, and as
//! processes of their own.

#[cfg(test)]
mod acceptance;
#[cfg(test)]
mod audits;
#[cfg(test)]
mod doubts;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod moving;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod settle;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod weights;
#[cfg(test)]
mod world;
