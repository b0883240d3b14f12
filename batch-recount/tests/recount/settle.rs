//! Recounts by the log `changes`, over an emulated store and the broker in memory, beside a relay and folds.

mod audits;
mod looks;
mod world;
