//! `tally restore`: prints the steps that restore the tables to a moment (`plan`), and checks the restored tables
//! (`check`). It changes nothing: AWS restores the tables, and Kafka's own tools set committed offsets back.

mod check;
mod plan;

use clap::Subcommand;

use crate::said::Answer;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Says whether the tables can be restored to a moment, and by which steps. Exits with 1 if they cannot
    Plan(Box<plan::Args>),
    /// Says whether tables that were restored fit each other and Kafka, before anything is started over them. Exits with 1 if not
    Check(Box<check::Args>),
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::Plan(args) => args.run().await,
            Self::Check(args) => args.run().await,
        }
    }
}
