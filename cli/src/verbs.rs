//! The verbs of `tally`, the operators' command: a module for each noun, so `post` has `tally post show`. A verb opens
//! the deployment (`desk`), reads, and returns an answer (`said`). It makes changes only by way of `change`.

pub(crate) mod adopt;
pub(crate) mod audit;
pub(crate) mod cost;
pub(crate) mod counters;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod draw;
pub(crate) mod erase;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod ledger;
pub(crate) mod pause;
pub(crate) mod post;
pub(crate) mod prepare;
pub(crate) mod recount;
pub(crate) mod regions;
pub(crate) mod restore;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod topic;
pub(crate) mod verify;
