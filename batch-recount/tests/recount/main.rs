//! Tests of whole recounts: over the emulator in this process under paused time, beside a relay and folds that a test
//! may stop; and as processes of their own beside the real change-streamer.

#[cfg(test)]
mod acceptance;
#[cfg(test)]
mod audits;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod liked;
#[cfg(test)]
mod looks;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod started;
#[cfg(test)]
mod watching;
#[cfg(test)]
mod world;
