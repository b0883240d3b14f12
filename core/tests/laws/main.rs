//! Tests of the core's laws: models, which explore its real decision functions exhaustively in small worlds, and
//! properties of its pure parts, which are checked on generated inputs.

#![cfg(test)]

mod explore;
mod intern;
mod models;
mod properties;
