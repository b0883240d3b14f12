//! `simulate`: many schedules, each in a process of its own, so that nothing outside of its seed reaches it; what they
//! did, and the first that broke a law, made as small as it gets.

mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum as _};
use tally_core::milestone::Ladder;
use tally_service::parse_duration;
use tokio::time::Instant;

use crate::simulation::faults::{kinds, kinds_of_lists};
use crate::simulation::mutant::Mutant;
use crate::simulation::schedule::{Order, Outcome, run};

pub use pool::Pool;

/// How many seconds one schedule may take; those for which its process is stopped are not counted.
const LIMIT: u32 = 600;

/// Events of a schedule that is to find a mutant.
const MUTANT_EVENTS: u64 = 1_200;

/// How often each mutant is to be found, and how often within a given time.
const FINDS: usize = 5;
const FINDS_IN_TIME: usize = 1;

/// Schedules, where neither their number nor a time is given.
const SEEDS: u64 = 100;

/// Schedules between two words on how far it is.
const PROGRESS: u64 = 50;

/// Characters of how a mutant was found that are printed.
const HOW: usize = 200;

/// Run seeded schedules of the whole pipeline in one process each, under virtual time
#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// How many schedules, 100 unless said otherwise; of mutants, how many at most for each
    #[arg(long)]
    seeds: Option<u64>,
    /// Start schedules for this long instead; mutants are then found once each, and those not reached are named
    #[arg(long = "for", value_parser = parse_duration, value_name = "SPAN")]
    span: Option<Duration>,
    /// The first one's seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Events said in each
    #[arg(long, default_value_t = 10_000)]
    events: u64,
    /// Find every mutant, in at most so many schedules each
    #[arg(long)]
    mutants: bool,
    /// Find this mutant
    #[arg(long, value_name = "NAME")]
    mutant: Vec<Mutant>,
    /// Record who reaches these totals first: `50`, `10,100`, or `every:50`
    #[arg(long, value_name = "LADDER")]
    milestones: Option<Ladder>,
    /// List what is trending from the log of changes, and hold every list against the rows
    #[arg(long)]
    trends: bool,
    /// Raise a claim, replace a consumer, or set the group back every second
    #[arg(long)]
    restless: bool,
    /// How many Regions there are: with 2, the second reads what the first publishes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    regions: u8,
    /// Run each schedule twice and compare the traces
    #[arg(long)]
    twice: bool,
    /// Schedules at once; as many as there are processors unless said otherwise
    #[arg(long)]
    jobs: Option<usize>,
}

impl Order {
    /// Runs it; a schedule that comes to no end is an outcome, too.
    ///
    /// # Errors
    /// No thread or runtime could be had, or nothing could be printed.
    pub fn run(self) -> anyhow::Result<()> {
        let seed = self.seed;
        let (sender, ended) = mpsc::channel();
        // A thread of its own: the keys of its maps are drawn once the seed is set.
        let thread = std::thread::Builder::new().name("schedule".to_owned()).stack_size(16 << 20);
        crate::simulation::wind(seed);
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
    /// Runs them.
    ///
    /// # Errors
    /// A law was broken, or a mutant was not found.
    pub fn run(self) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let pool = Pool::of(program, self.jobs);
        let mut mutants = if self.mutants { Mutant::value_variants().to_vec() } else { self.mutant.clone() };
        if self.span.is_some() && !mutants.is_empty() {
            // Start with another mutant for another seed, so that the last ones are not always cut.
            let first = usize::try_from(self.first_seed)? % mutants.len();
            mutants.rotate_left(first);
        }
        let until = self.span.map(|span| Instant::now() + span);
        if mutants.is_empty() { self.schedules(&pool, until) } else { self.find(&pool, &mutants, until) }
    }

    /// The seeds of schedules; there are no more of them once it is `until`.
    fn seeds(&self, until: Option<Instant>, default: u64) -> impl Iterator<Item = u64> + Send + use<> {
        let seeds = self.first_seed..self.first_seed.saturating_add(self.seeds.unwrap_or(default));
        seeds.take_while(move |_| !is_over(until))
    }

    fn schedules(&self, pool: &Pool, until: Option<Instant>) -> anyhow::Result<()> {
        let Self { events, milestones, trends, restless, regions, .. } = *self;
        let order = |seed| Order { seed, events, milestones, trends, restless, regions, ..Order::default() };
        let mut tally = Tally::default();
        let mut first: Option<Outcome> = None;
        let default = if until.is_some() { u64::MAX } else { SEEDS };
        pool.each(self.seeds(until, default).map(order), self.twice, |outcome| {
            tally.add(&outcome);
            if tally.schedules.is_multiple_of(PROGRESS) {
                let _ = writeln!(std::io::stderr(), "{} schedules, seed {} among them", tally.schedules, outcome.seed);
            }
            if let Some(how) = &outcome.broken {
                let _ = line(&format!("seed {} broke a law: {how}", outcome.seed));
                if first.as_ref().is_none_or(|first| outcome.seed < first.seed) {
                    first = Some(outcome);
                }
            }
            true
        })?;
        tally.print()?;
        let Some(first) = first else { return line("every law held") };
        pool::shrink(pool, order(first.seed), &first)?;
        bail!("{} schedules broke a law, seed {} first", tally.broken, first.seed)
    }

    fn find(&self, pool: &Pool, mutants: &[Mutant], until: Option<Instant>) -> anyhow::Result<()> {
        let events = self.events.min(MUTANT_EVENTS);
        let finds = if until.is_some() { FINDS_IN_TIME } else { FINDS };
        let (mut missed, mut cut) = (Vec::new(), Vec::new());
        for mutant in mutants {
            if is_over(until) {
                cut.push(mutant.name());
                continue;
            }
            let (mutant, milestones, restless) = (*mutant, self.milestones, self.restless);
            let of_mutant = Order { events, mutant: Some(mutant), milestones, restless, ..Order::default() };
            let order = |seed| Order { seed, ..of_mutant.clone() };
            let mut found: BTreeMap<u64, String> = BTreeMap::new();
            let mut ran = BTreeSet::new();
            pool.each(self.seeds(until, SEEDS).map(order), false, |outcome| {
                ran.insert(outcome.seed);
                if let Some(how) = outcome.mutant_found() {
                    found.insert(outcome.seed, how.to_owned());
                }
                found.len() < finds
            })?;
            // Else it was not the mutant that was found.
            for seed in found.keys() {
                if let Some(how) = pool.one(&Order { spared: true, ..order(*seed) })?.broken {
                    bail!("schedule {seed} of {} breaks a law without it, too: {how}", mutant.name());
                }
            }
            match (median(&found, &ran), found.first_key_value()) {
                (Some(median), Some((seed, how))) => line(&format!(
                    "{:<18} found {} times in {} schedules, median {median}; first by seed {seed}: {how}",
                    mutant.name(),
                    found.len(),
                    ran.len(),
                    how = how.chars().take(HOW).collect::<String>(),
                ))?,
                _ if is_over(until) => cut.push(mutant.name()),
                _ => {
                    line(&format!("{:<18} not found in {} schedules", mutant.name(), ran.len()))?;
                    missed.push(mutant.name());
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

/// Whether it is later than `until`.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// How many schedules it took to find what was `found`, each time, in the median; those after the last count as one time
/// more where they were many.
fn median(found: &BTreeMap<u64, String>, ran: &BTreeSet<u64>) -> Option<usize> {
    let mut spans = Vec::new();
    let mut span = 0;
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
    spans.get(spans.len() / 2).copied()
}

/// What many schedules came to.
#[derive(Debug, Default)]
struct Tally {
    schedules: u64,
    broken: u64,
    /// The sums of what each came to.
    all: Outcome,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.schedules += 1;
        self.broken += u64::from(outcome.broken.is_some());
        let all = &mut self.all;
        all.events += outcome.events;
        all.verdicts += outcome.verdicts;
        all.milestones += outcome.milestones;
        all.rows += outcome.rows;
        all.answers += outcome.answers;
        all.exact += outcome.exact;
        all.lists += outcome.lists;
        all.lists_exact += outcome.lists_exact;
        all.lists_bounded += outcome.lists_bounded;
        all.virtual_ms += outcome.virtual_ms;
        for (kind, count) in &outcome.faults {
            *all.faults.entry(kind.clone()).or_default() += count;
        }
    }

    fn print(&self) -> anyhow::Result<()> {
        let Self { schedules, broken, all } = self;
        let Outcome { events, verdicts, milestones, rows, answers, exact, lists, lists_exact, lists_bounded, .. } = all;
        let hours = all.virtual_ms / 3_600_000;
        line(&format!(
            "{schedules} schedules, {broken} broke a law; {events} events, {rows} rows at the end, {verdicts} verdicts and {milestones} milestones checked, {answers} answers judged of which {exact} said exact, {hours} virtual hours"
        ))?;
        if *lists > 0 {
            line(&format!(
                "{lists} lists judged of which {lists_exact} said exact and {lists_bounded} stated a bound"
            ))?;
        }
        all.faults.iter().try_for_each(|(kind, count)| line(&format!("  {kind:<22} {count}")))?;
        let of_lists = kinds_of_lists().filter(|_| *lists > 0);
        let missing: Vec<String> = kinds().chain(of_lists).filter(|kind| !all.faults.contains_key(kind)).collect();
        if missing.is_empty() { line("every kind of fault fired") } else { line(&format!("never fired: {missing:?}")) }
    }
}

fn broken(seed: u64, how: &str) -> Outcome {
    Outcome { seed, broken: Some(how.to_owned()), ..Outcome::default() }
}

/// Prints one line.
fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").context("cannot print")
}
