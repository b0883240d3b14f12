#![doc = include_str!("../README.md")]

#[cfg(feature = "args")]
mod deployment;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "testkit")]
pub mod faulty;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "testkit")]
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

#[cfg(feature = "args")]
pub use deployment::Deployment;
