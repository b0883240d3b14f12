#![doc = include_str!("../README.md")]

mod deployment;
pub mod dynamodb;
pub mod kafka;
pub mod memory;
pub mod redis;

pub use deployment::Deployment;
