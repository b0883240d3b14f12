//! Recounts while the pipeline is attacked, and what each says it found.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tally_testkit::Process;
use tokio::time::Instant;

use super::figures::Recoveries;
use super::fleet::Launcher;
use super::service::Service;
use super::stage::Stage;
use crate::simulation::chance::Draws;

/// How long a full audit may take when all is quiet.
const QUIET: Duration = Duration::from_secs(300);

/// How long a recount may go on under attack: it waits for streamers that are killed and asleep.
const PATIENCE: Duration = Duration::from_secs(45);

/// What a recount that ran to its end has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) took: Duration,
    pub(crate) rows: u64,
}

/// Runs a full audit to its end.
pub(crate) async fn audit(launcher: &Launcher) -> anyhow::Result<Found> {
    let began = Instant::now();
    let process = launcher.start(Service::Recount, &[])?;
    let code = process.exit(QUIET).await?;
    finished(&process, code, began.elapsed())
}

/// Runs a full audit to its end, which may have much to correct and leaves nothing wrong.
pub(crate) async fn repair(launcher: &Launcher) -> anyhow::Result<()> {
    let process = launcher.start(Service::Recount, &[])?;
    let code = process.exit(QUIET).await?;
    ensure!(code == Some(0), "a recount left counts wrong, and ended with {code:?}\n{}", process.tail());
    Ok(())
}

/// Recounts all of `post` while it changes; `None` if that came to no end. Counts are never wrong, so that it may find
/// nothing, whatever happens meanwhile.
pub(crate) async fn attempt(launcher: &Launcher, post: &str) -> anyhow::Result<Option<Found>> {
    let began = Instant::now();
    let process = launcher.start(Service::Recount, &["--post", post])?;
    let Ok(code) = process.exit(PATIENCE).await else {
        process.kill().await?;
        return Ok(None);
    };
    finished(&process, code, began.elapsed()).map(Some)
}

/// Recounts under attack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) done: Recoveries,
    pub(crate) unfinished: usize,
}

impl Attempts {
    /// Makes one more, of a post that is chosen.
    pub(crate) async fn make(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let post = format!("p-{}", stage.chance.below(stage.crowd.posts));
        match attempt(&stage.fleet.launcher, &post).await? {
            Some(found) => self.done.add(found.took),
            None => self.unfinished += 1,
        }
        Ok(())
    }
}

/// What a recount that ended with `code` has found, which has to be nothing.
fn finished(process: &Process, code: Option<i32>, took: Duration) -> anyhow::Result<Found> {
    let printed = process.printed();
    let summary = printed.lines().rev().find_map(summary).with_context(|| process.tail())?;
    let drift = summary["drift"].as_object().is_some_and(|drift| !drift.is_empty());
    let number = |name: &str| summary[name].as_u64().unwrap_or(0);
    ensure!(!drift && number("corrected") == 0, "a recount found wrong counts: {summary}\n{}", process.tail());
    ensure!(number("misplaced_rows") == 0, "a recount found misplaced rows: {summary}");
    ensure!(code == Some(0), "a recount ended with {code:?}: {summary}\n{}", process.tail());
    Ok(Found { took, rows: number("rows") })
}

fn summary(line: &str) -> Option<Value> {
    let line: Value = serde_json::from_str(line).ok()?;
    line.get("summary").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_found_among_lines_of_progress() {
        assert_eq!(summary(r#"{"progress":{"rows":1}}"#), None);
        assert_eq!(summary("recount 1"), None);
        assert_eq!(summary(r#"{"run":"1","summary":{"rows":7}}"#).unwrap()["rows"], 7);
    }
}
