//! The ports over DynamoDB and DynamoDB Streams, through the SDK or, for the most frequent calls, around it. What a condition means and what follows from a
//! refusal is decided in `tally_core`; here it is put into requests, and replies into our words.

mod batch;
pub mod changes;
mod checkpoints;
mod connection;
pub mod counters;
mod counts;
mod cursor;
mod direct;
mod drift;
mod endpoint;
mod environment;
mod examine;
mod expression;
mod fault;
mod get;
mod instance;
mod item;
mod likes;
mod names;
mod numbers;
mod recounts;
mod settings;
mod streams;
mod tables;
mod template;

pub use checkpoints::{Checkpoints, Configuration, Rebuilding};
pub use connection::{Connection, Missing};
pub use counts::{Anew, Counts};
pub use drift::inject_drift;
pub use endpoint::check_endpoint;
pub use environment::environment;
pub use examine::{Examined, Quotas};
pub use get::Consistency;
pub use likes::{Likes, Maps, Markers, Remains, Rows};
pub use names::Tables;
pub use numbers::{Behind, Numbers};
pub use recounts::Recounts;
pub use settings::{Access, Settings};
pub use streams::Streams;
pub use tables::check_tables;
pub(crate) use tables::{held_items, holds_items};
pub use template::ensure_tables;
