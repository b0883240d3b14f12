//! `tally restore`: what it takes to put the tables back to a moment, and whether it was done right. It changes nothing: tables are
//! restored by AWS, and what consumers have committed is set back by Kafka's own tools.

mod check;
mod plan;

use clap::Subcommand;

use crate::said::{Form, print};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Says whether the tables can be restored to a moment, and by which steps. Exits with 1 if they cannot
    Plan(Box<plan::Args>),
    /// Says whether tables that were restored fit each other and Kafka, before anything is started over them. Exits with 1 if not
    Check(Box<check::Args>),
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        match self {
            Self::Plan(args) => print(&args.run().await?, form),
            Self::Check(args) => print(&args.run().await?, form),
        }
    }
}
