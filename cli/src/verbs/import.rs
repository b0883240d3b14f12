//! `tally import`: sends likes from a file to the topic of events, where consumers write them like any others. `lines`
//! reads the file, `parse` makes events, `run` sends them, and `place` stores the progress and the rejected lines.

mod lines;
mod parse;
mod place;
mod run;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use clap::builder::TypedValueParser as _;
use tally_adapters::kafka;
use tally_core::time::UnixMillis;

use self::run::{Import, Target};
use crate::change::{Changing, Writing};
use crate::desk::Desk;
use crate::said::Answer;

/// The arguments that say what to import, and how.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ImportArgs {
    /// The file to read; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How the lines are written. By default CSV where the file's name ends in `.csv`, NDJSON otherwise
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,

    /// The most lines a second. Live likes share the tables' capacity with them
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000), value_name = "COUNT")]
    rate: u32,

    /// When the likes of lines that state no `ts` happened, in milliseconds since 1970. By default when they are sent
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=UnixMillis::MAX.0).map(UnixMillis), value_name = "MILLIS")]
    ts: Option<UnixMillis>,

    /// Where to keep how far the import is. By default the file's name followed by `.progress`; none for standard input
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,

    /// Where to write the lines that are no events. By default the file's name followed by `.rejected`; none for
    /// standard input and in a dry run. The first five are shown
    #[arg(long, value_name = "FILE")]
    rejected: Option<PathBuf>,

    /// Give up when more lines than this are no events
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    max_rejected: u64,

    /// Take times before the year 2000. Without this they are refused: they are seconds that were meant as milliseconds
    #[arg(long)]
    allow_old_times: bool,

    /// Read and check everything, look at the topic, and send nothing
    #[arg(long)]
    dry_run: bool,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Each line is an event as JSON, as it would be in Kafka
    Ndjson,
    /// The first line names the columns: post_id, user_id, and if wanted action, region and ts; others are ignored, and
    /// named at the end. A line without an action is a like
    Csv,
}

impl ImportArgs {
    /// Returns the path of the file; `None` for standard input.
    fn path(&self) -> Option<&Path> {
        Some(&*self.file).filter(|path| path.as_os_str() != "-")
    }

    /// Returns the path of a file beside the imported one; `None` for standard input.
    fn beside(&self, ending: &str) -> Option<PathBuf> {
        self.path().map(|path| PathBuf::from(format!("{}.{ending}", path.display())))
    }

    fn format(&self) -> Format {
        let is_csv = self.file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        self.format.unwrap_or(if is_csv { Format::Csv } else { Format::Ndjson })
    }

    /// Returns the path of the file that says how far the import is.
    fn progress(&self) -> Option<PathBuf> {
        self.progress.clone().or_else(|| self.beside("progress"))
    }

    /// Returns the path of the file for lines that are no events. A dry run has none by default.
    fn rejected(&self) -> Option<PathBuf> {
        self.rejected.clone().or_else(|| self.beside("rejected").filter(|_| !self.dry_run))
    }
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    import: ImportArgs,

    #[command(flatten)]
    change: Changing,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { import: settings, change: Changing { writing, of } } = self;
        let desk = Desk::open(of).await?;
        let topic = desk.counted_topic().await?;
        let to = Target {
            reader: Arc::new(desk.reader(&topic)?),
            producer: Arc::new(kafka::Producer::new(desk.kafka()?).context("cannot set up a producer")?),
            topic: topic.clone(),
        };
        let open = async |settings| Import::open(to.clone(), settings, &desk.host).await;
        let (mut plan, mut found, mut is_whole) = (Vec::new(), Vec::new(), true);
        if settings.path().is_none() {
            // Standard input can be read only once, so the plan cannot say what it holds.
            plan.push(format!("send the likes of the standard input to `{topic}`"));
        } else {
            let mut would = open(ImportArgs { dry_run: true, rejected: None, ..settings.clone() }).await?;
            would.run().await?;
            (found, is_whole) = (would.found(), would.place.rejected() == 0);
            let (lines, sent) = would.done();
            let send = format!("send {sent} events of {lines} lines to `{topic}`");
            match &would.before {
                before if before.lines > 0 && lines == 0 => found.push(format!("nothing is new {before}")),
                before if before.lines > 0 => plan.push(format!("{send}, {before}")),
                _ if sent > 0 => plan.push(send),
                _ => {}
            }
        }
        let writing = Writing { yes: writing.yes && !settings.dry_run, ..writing };
        let changed = writing.carry_out(&desk, "import", plan, async || {
            let mut import = open(settings).await?;
            let ended = import.run().await;
            is_whole = import.place.rejected() == 0;
            if found.is_empty() {
                found.clone_from(&import.rejected.first);
            }
            ended.with_context(|| import.said())?;
            Ok(import.said())
        });
        let changed = changed.await?.with(found);
        Ok(Answer::from(changed).wrong_if(!is_whole))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        import: ImportArgs,
    }

    fn settings(args: &[&str]) -> ImportArgs {
        Line::parse_from(std::iter::once(&"import").chain(args)).import
    }

    #[test]
    fn a_file_keeps_its_place_beside_itself_and_standard_input_keeps_none() {
        let file = settings(&["likes.CSV"]);
        assert_eq!((file.format(), file.progress()), (Format::Csv, Some("likes.CSV.progress".into())));
        assert_eq!(file.rejected(), Some("likes.CSV.rejected".into()));
        let input = settings(&["-"]);
        assert_eq!((input.format(), input.progress(), input.rejected()), (Format::Ndjson, None, None));
        assert_eq!(settings(&["likes.csv", "--dry-run"]).rejected(), None, "that of the import stays");
        assert_eq!(settings(&["-", "--progress", "p"]).progress(), Some("p".into()));
        assert_eq!(settings(&["likes.csv", "--format", "ndjson"]).format(), Format::Ndjson);
    }

    #[test]
    fn an_import_that_would_never_send_and_a_time_that_no_event_may_have_are_refused() {
        for (flag, value) in [("--rate", "0"), ("--ts", "253402300800000")] {
            let said = Line::try_parse_from(["import", "f", flag, value]).err().unwrap().to_string();
            assert!(said.contains(flag), "{said}");
        }
    }
}
