//! The laws of the core: models, which explore its real decision functions exhaustively, and properties of its pure
//! parts.

#![cfg(test)]

mod explore;
mod intern;
mod models;
mod properties;
