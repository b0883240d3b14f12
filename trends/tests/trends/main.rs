//! Tests the lists of what is trending, which are compared with what all changes of counts add up to, and the service
//! that makes them.

#![cfg(test)]

mod lists;
mod service;
