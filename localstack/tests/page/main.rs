//! The page from outside: its routes over a stack that is made up, and a real browser over the whole pipeline.

#![cfg(test)]

mod browser;
mod routes;
