//! Tests the local stack's page from outside: its HTTP routes over a made-up stack, and a real browser over the whole
//! pipeline.

#![cfg(test)]

mod browser;
mod routes;
