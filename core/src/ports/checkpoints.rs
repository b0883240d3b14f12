//! The checkpoints table by the roles it has: the registry of stream shards, how far each is applied and how far it is in the
//! ledger of changes, leases, open gaps, and what the deployment was created with. (Fences live there too, behind [`FencedRows`](super::FencedRows).)

mod changes;
mod deployment;
mod gaps;
mod leases;
mod positions;
mod registry;

pub use changes::{ChangesLedger, ChangesTerms};
pub use deployment::DeploymentConfig;
pub use gaps::{Gap, GapId, Gaps, Standing, Told};
pub use leases::{Lease, LeaseTaken, Leases, Worker};
pub use positions::{Positions, ShardState};
pub use registry::{Registry, StreamRegistry};

/// All roles of the checkpoints table, for a process that has several of them.
pub trait Checkpoints: StreamRegistry + Positions + Leases + Gaps + DeploymentConfig + ChangesLedger {}

impl<T: StreamRegistry + Positions + Leases + Gaps + DeploymentConfig + ChangesLedger> Checkpoints for T {}
