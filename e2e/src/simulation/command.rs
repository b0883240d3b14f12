//! The command `tally-e2e simulate`: runs many schedules, which are runs of the simulation that each follow from a
//! seed. Each has its own process so that only its seed influences it. The command reports what they did, and reduces
//! the first one that broke a law.

mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum as _};
use tally_service::parse_duration;
use tokio::time::Instant;

use crate::simulation::faults::{kinds, kinds_of_lists, kinds_of_regions};
use crate::simulation::mutant::Mutant;
use crate::simulation::outcome::Outcome;
use crate::simulation::schedule::{Form, Order, run};

pub use pool::Pool;

/// How many seconds one schedule may take, not counting those for which its process is stopped.
const LIMIT: u32 = 600;

/// The number of events in a schedule that has to find a mutant.
const MUTANT_EVENTS: u64 = 1_200;

/// How often each mutant has to be found, without and with a time limit.
const FINDS: usize = 5;
const FINDS_IN_TIME: usize = 1;

/// The default number of schedules.
const SEEDS: u64 = 100;

/// The number of schedules after which progress is printed.
const PROGRESS: u64 = 50;

/// The number of characters of a mutant's finding that are printed.
const HOW: usize = 200;

/// Run random schedules of the whole pipeline under virtual time, each in its own process
#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// Number of schedules, by default 100; for mutants, the maximum for each
    #[arg(long)]
    seeds: Option<u64>,
    /// Start schedules for this long instead; each mutant is then found once, and those without a turn are named
    #[arg(long = "for", value_parser = parse_duration, value_name = "SPAN")]
    span: Option<Duration>,
    /// Seed of the first schedule
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    #[command(flatten)]
    form: Form,
    /// Find every mutant
    #[arg(long)]
    mutants: bool,
    /// Find this mutant
    #[arg(long, value_name = "NAME")]
    mutant: Vec<Mutant>,
    /// Run each schedule twice and compare the traces
    #[arg(long)]
    twice: bool,
    /// Number of concurrent schedules; by default the number of processors
    #[arg(long)]
    jobs: Option<usize>,
}

impl Order {
    /// Runs the schedule. If it does not end in time, that is an outcome, too.
    ///
    /// # Errors
    /// No thread or runtime can be started, or nothing can be printed.
    pub fn run(self) -> anyhow::Result<()> {
        let seed = self.seed;
        let (sender, ended) = mpsc::channel();
        // A new thread draws the keys of its hash maps after the seed is set.
        let thread = std::thread::Builder::new().name("schedule".to_owned()).stack_size(16 << 20);
        crate::simulation::seed_randomness(seed);
        thread.spawn(move || sender.send(run(&self)).is_ok()).context("cannot start a thread")?;
        let mut heard = (0..LIMIT).map(|_| ended.recv_timeout(Duration::from_secs(1)));
        let outcome = match heard.find(|heard| !matches!(heard, Err(mpsc::RecvTimeoutError::Timeout))) {
            Some(Ok(outcome)) => outcome?,
            Some(Err(_)) => broken(seed, "panicked"),
            None => Outcome { endless: true, ..broken(seed, &format!("took longer than {LIMIT} seconds")) },
        };
        line(&serde_json::to_string(&outcome)?)
    }
}

impl Simulate {
    /// Runs the schedules or finds the mutants.
    ///
    /// # Errors
    /// A law was broken, or a mutant was not found.
    pub fn run(self) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let pool = Pool::of(program, self.jobs);
        let mut mutants = if self.mutants { Mutant::value_variants().to_vec() } else { self.mutant.clone() };
        if self.span.is_some() && !mutants.is_empty() {
            // Each first seed begins with another mutant, so that a time limit does not always cut the same ones.
            let first = usize::try_from(self.first_seed)? % mutants.len();
            mutants.rotate_left(first);
        }
        let until = self.span.map(|span| Instant::now() + span);
        if mutants.is_empty() { self.schedules(&pool, until) } else { self.find(&pool, &mutants, until) }
    }

    /// The seeds of the schedules, which end at `until`.
    fn seeds(&self, until: Option<Instant>, default: u64) -> impl Iterator<Item = u64> + Send + use<> {
        let seeds = self.first_seed..self.first_seed.saturating_add(self.seeds.unwrap_or(default));
        seeds.take_while(move |_| !is_over(until))
    }

    fn schedules(&self, pool: &Pool, until: Option<Instant>) -> anyhow::Result<()> {
        let form = self.form;
        let order = |seed| Order { seed, form, ..Order::default() };
        let (mut schedules, mut broken, mut all) = (0_u64, 0, Outcome::default());
        let mut first: Option<Outcome> = None;
        let default = if until.is_some() { u64::MAX } else { SEEDS };
        pool.each(self.seeds(until, default).map(order), self.twice, |outcome| {
            schedules += 1;
            add(&mut all.faults, &outcome.faults);
            add(&mut all.checked, &outcome.checked);
            if schedules.is_multiple_of(PROGRESS) {
                let _ = writeln!(std::io::stderr(), "{schedules} schedules, seed {} among them", outcome.seed);
            }
            if let Some(how) = &outcome.broken {
                broken += 1;
                let _ = line(&format!("seed {} broke a law: {how}", outcome.seed));
                if first.as_ref().is_none_or(|first| outcome.seed < first.seed) {
                    first = Some(outcome);
                }
            }
            true
        })?;
        line(&format!("{schedules} schedules, {broken} broke a law"))?;
        print_all("checked", &all.checked)?;
        print_faults(&all, form.regions)?;
        let Some(first) = first else { return line("every law held") };
        pool::shrink(pool, order(first.seed), &first)?;
        bail!("{broken} schedules broke a law, seed {} first", first.seed)
    }

    fn find(&self, pool: &Pool, mutants: &[Mutant], until: Option<Instant>) -> anyhow::Result<()> {
        let form = Form { events: self.form.events.min(MUTANT_EVENTS), ..self.form };
        let finds = if until.is_some() { FINDS_IN_TIME } else { FINDS };
        let (mut missed, mut cut) = (Vec::new(), Vec::new());
        for &mutant in mutants {
            let name = mutant.name();
            if is_over(until) {
                cut.push(name);
                continue;
            }
            let order = |seed| Order { seed, form, mutant: Some(mutant), ..Order::default() };
            let mut found: BTreeMap<u64, String> = BTreeMap::new();
            let mut ran = BTreeSet::new();
            pool.each(self.seeds(until, SEEDS).map(order), false, |outcome| {
                ran.insert(outcome.seed);
                if let Some(how) = outcome.mutant_found() {
                    found.insert(outcome.seed, how.to_owned());
                }
                found.len() < finds
            })?;
            // Otherwise it was not the mutant that broke the law.
            for seed in found.keys() {
                if let Some(how) = pool.one(&Order { spared: true, ..order(*seed) })?.broken {
                    bail!("schedule {seed} of {name} breaks a law without it, too: {how}");
                }
            }
            let schedules = ran.len();
            match found.first_key_value() {
                Some((seed, how)) => {
                    let (times, median) = (found.len(), median(&found, &ran));
                    let how: String = how.chars().take(HOW).collect();
                    line(&format!(
                        "{name:<18} found {times} times in {schedules} schedules, median {median}; first by seed {seed}: {how}"
                    ))?;
                }
                None if is_over(until) => cut.push(name),
                None => {
                    line(&format!("{name:<18} not found in {schedules} schedules"))?;
                    missed.push(name);
                }
            }
        }
        let found = mutants.len() - missed.len() - cut.len();
        line(&format!("{found} of {} mutants found", mutants.len()))?;
        if !cut.is_empty() {
            line(&format!("cut: {}", cut.join(" ")))?;
        }
        if missed.is_empty() { Ok(()) } else { bail!("not found: {}", missed.join(", ")) }
    }
}

/// Whether `until` has passed.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// The median number of schedules that it took to find a mutant. Schedules after the last finding count as one more if they are
/// many.
fn median(found: &BTreeMap<u64, String>, ran: &BTreeSet<u64>) -> usize {
    let (mut spans, mut span) = (Vec::new(), 0);
    for seed in ran {
        span += 1;
        if found.contains_key(seed) {
            spans.push(std::mem::take(&mut span));
        }
    }
    if spans.iter().all(|earlier| *earlier < span) {
        spans.push(span);
    }
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn add(all: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    more.iter().for_each(|(what, count)| *all.entry(what.clone()).or_default() += count);
}

fn print_all(heading: &str, counted: &BTreeMap<String, u64>) -> anyhow::Result<()> {
    line(heading)?;
    counted.iter().try_for_each(|(what, count)| line(&format!("  {what:<22} {count}")))
}

/// Prints how often each fault occurred in many schedules, and which never did.
fn print_faults(all: &Outcome, regions: u8) -> anyhow::Result<()> {
    print_all("faults", &all.faults)?;
    let of_lists = kinds_of_lists().filter(|_| all.checked("lists") > 0);
    let of_regions = kinds_of_regions().filter(|_| regions > 1);
    let expected = kinds().chain(of_lists).chain(of_regions);
    let missing: Vec<String> = expected.filter(|kind| !all.faults.contains_key(kind)).collect();
    if missing.is_empty() {
        line("every kind of fault occurred")
    } else {
        line(&format!("faults that never occurred: {missing:?}"))
    }
}

fn broken(seed: u64, how: &str) -> Outcome {
    Outcome { seed, broken: Some(how.to_owned()), ..Outcome::default() }
}

/// Prints one line.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").context("cannot print")
}
