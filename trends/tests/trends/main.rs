//! Tests the lists of what is trending against all changes, and the service that makes them.

#![cfg(test)]

mod lists;
mod service;
