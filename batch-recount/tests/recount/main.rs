//! Tests of whole recounts: over the emulator in this process under paused time, beside a relay and folds that a test
//! may stop; and as processes of their own beside the real change-streamer.

#![cfg(test)]

mod acceptance;
mod audits;
mod jobs;
mod liked;
mod looks;
mod processes;
mod started;
mod watching;
mod world;
