//! Runs many schedules (runs of the simulation, each from a seed) side by side, each in its own process. One that
//! breaks a law is reduced: fewer events and fewer kinds of faults, as long as some law still breaks.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use parking_lot::Mutex;

use crate::simulation::command::{broken, line};
use crate::simulation::outcome::Outcome;
use crate::simulation::schedule::{Form, Order};

/// Runs schedules in processes.
#[derive(Clone, Debug)]
pub struct Pool {
    program: PathBuf,
    jobs: usize,
}

impl Pool {
    /// Uses processes of `program`, which is this crate's, as many at once as `jobs` says or as there are processors.
    pub fn of(program: PathBuf, jobs: Option<usize>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { program, jobs: jobs.unwrap_or(processors).max(1) }
    }

    /// Runs `orders` until `go_on` returns false; it is called with each outcome as it arrives. With `twice`, each schedule
    /// runs a second time, and a different trace counts as a broken law.
    ///
    /// # Errors
    /// A schedule cannot be run, or its outcome cannot be read.
    pub fn each(
        &self,
        orders: impl Iterator<Item = Order> + Send,
        twice: bool,
        go_on: impl FnMut(Outcome) -> bool + Send,
    ) -> anyhow::Result<()> {
        // None once no more orders are wanted.
        let (orders, go_on) = (Mutex::new(Some(orders.fuse())), Mutex::new(go_on));
        let next = || orders.lock().as_mut()?.next();
        let work = || {
            while let Some(order) = next() {
                let outcome = self.checked(&order, twice);
                let outcome = outcome.inspect_err(|_| *orders.lock() = None)?;
                if !(go_on.lock())(outcome) {
                    *orders.lock() = None;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    fn checked(&self, order: &Order, twice: bool) -> anyhow::Result<Outcome> {
        let outcome = self.one(order)?;
        if twice && outcome.broken.is_none() && self.one(order)?.hash != outcome.hash {
            return Ok(broken(order.seed, "two runs of one seed had different traces"));
        }
        Ok(outcome)
    }

    /// Runs one schedule.
    pub(super) fn one(&self, order: &Order) -> anyhow::Result<Outcome> {
        let mut command = Command::new(&self.program);
        command.arg("schedule").args(order.flags()).stderr(Stdio::piped());
        let output = command.output().context("cannot start a schedule")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "schedule {} ended with {}: {said}", order.seed, output.status);
        // The operators' commands print their output before the outcome.
        let printed = output.stdout.trim_ascii_end();
        let last = printed.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut outcome: Outcome = serde_json::from_slice(last).context("cannot read an outcome")?;
        if let Some(broken) = outcome.broken.as_mut().filter(|_| said.contains("panicked")) {
            *broken = format!("{broken}: {}", said.trim());
        }
        Ok(outcome)
    }
}

/// The number of lines of the trace that are printed.
const LINES: usize = 60;

/// Prints the smallest schedule that still breaks a law, the command that runs it, and the end of its trace.
pub(super) fn shrink(pool: &Pool, mut order: Order, first: &Outcome) -> anyhow::Result<()> {
    let mut last = first.clone();
    while order.form.events > 40 {
        let smaller = Order { form: Form { events: order.form.events / 2, ..order.form }, ..order.clone() };
        let outcome = pool.one(&smaller)?;
        if outcome.broken.is_none() {
            break;
        }
        (order, last) = (smaller, outcome);
    }
    for kind in first.faults.keys() {
        let mut smaller = order.clone();
        smaller.without.push(kind.clone());
        let outcome = pool.one(&smaller)?;
        if outcome.broken.is_some() {
            (order, last) = (smaller, outcome);
        }
    }
    let outcome = pool.one(&Order { lines: true, ..order.clone() })?;
    let left: Vec<&String> = last.faults.keys().collect();
    line(&format!("smallest: schedule {}", order.flags().join(" ")))?;
    line(&format!("faults left: {left:?}"))?;
    line(outcome.broken.as_deref().context("the schedule is not reproducible")?)?;
    outcome.lines.iter().rev().take(LINES).rev().try_for_each(|text| line(text))
}
