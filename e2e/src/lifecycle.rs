//! What a deployment has to survive in its life: a restore to a moment, lost checkpoints, and lost counts.
//! Real processes and the operators' own command, under load, held against the ledger of what was said.

mod checkpoints;
mod command;
mod counts;
mod restore;

use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::attack::engines::Engines;
use crate::attack::stage::Judgement;
use crate::undisturbed;

pub use crate::attack::operator::is_operator;
pub use checkpoints::lose_checkpoints;
pub use command::Lifecycle;
pub use counts::lose_counts;
pub use restore::restore;

/// The four tables of a deployment, without their prefix.
const TABLES: [&str; 4] = ["likes", "like_counts", "checkpoints", "recounts"];

/// What was done, a line each.
#[derive(Debug, Default)]
struct Story(Vec<String>);

impl Story {
    fn tell(&mut self, line: impl Into<String>) {
        let line = line.into();
        tracing::info!("{line}");
        self.0.push(line);
    }

    /// The story, and what everything came to in the end.
    fn ended(&self, heading: &str, judgement: &Judgement) -> String {
        let mut text = format!("{heading}\n");
        for line in &self.0 {
            let _ = writeln!(text, "  {line}");
        }
        let compared = &judgement.compared;
        let _ = writeln!(text, "  {} events said, {} amounts of unknown outcome", judgement.said, judgement.doubtful);
        let _ = writeln!(
            text,
            "  {} rows are what was said, {} of them cells; {} counters are what their rows weigh; a recount found nothing",
            compared.rows, compared.cells, compared.counters
        );
        let _ = writeln!(text, "  answers of the api: {}; {} said exact", judgement.answers, judgement.honest.exact);
        let _ = writeln!(text, "0 differences");
        text
    }
}

/// Sends a request to the store by hand.
async fn by_hand(engines: &Engines, operation: &str, body: Value) -> anyhow::Result<()> {
    asked(engines, operation, body).await.map(|_| ())
}

/// Its answer.
async fn asked(engines: &Engines, operation: &str, body: Value) -> anyhow::Result<Value> {
    let answer = undisturbed::ask(&engines.emulator, operation, &body).await;
    answer.with_context(|| format!("the store refused {operation} {body}"))
}

/// Has a table be kept as it has to be: restorable, and protected.
async fn keep(engines: &Engines, table: &str) -> anyhow::Result<()> {
    let recovery =
        json!({"TableName": table, "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true}});
    by_hand(engines, "UpdateContinuousBackups", recovery).await?;
    by_hand(engines, "UpdateTable", json!({"TableName": table, "DeletionProtectionEnabled": true})).await
}
