//! The arguments of `tally import`.

use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser as _;
use clap::{Args, ValueEnum};
use tally_core::time::UnixMillis;

/// The arguments that say what to import, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct ImportArgs {
    /// The file to read; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// How the lines are written. By default CSV where the file's name ends in `.csv`, NDJSON otherwise
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) format: Option<Format>,

    /// The most lines a second. Live likes share the tables' capacity with them
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000), value_name = "COUNT")]
    pub(super) rate: u32,

    /// When the likes of lines that state no `ts` happened, in milliseconds since 1970. By default when they are sent
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=UnixMillis::MAX.0).map(UnixMillis), value_name = "MILLIS")]
    pub(super) ts: Option<UnixMillis>,

    /// Where to keep how far the import is. By default the file's name followed by `.progress`; none for standard input
    #[arg(long, value_name = "FILE")]
    pub(super) progress: Option<PathBuf>,

    /// Where to write the lines that are no events. By default the file's name followed by `.rejected`; none for
    /// standard input and in a dry run. The first five are shown
    #[arg(long, value_name = "FILE")]
    pub(super) rejected: Option<PathBuf>,

    /// Give up when more lines than this are no events
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    pub(super) max_rejected: u64,

    /// Take times before the year 2000. Without this they are refused: they are seconds that were meant as milliseconds
    #[arg(long)]
    pub(super) allow_old_times: bool,

    /// Read and check everything, look at the topic, and send nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Each line is an event as JSON, as it would be in Kafka
    Ndjson,
    /// The first line names the columns: post_id, user_id, and if wanted action, region and ts; others are ignored, and
    /// named at the end. A line without an action is a like
    Csv,
}

impl ImportArgs {
    /// Returns the path of the file; `None` for standard input.
    pub(super) fn path(&self) -> Option<&Path> {
        Some(&*self.file).filter(|path| path.as_os_str() != "-")
    }

    /// Returns the size of the file, if it is a regular one.
    pub(super) fn size(&self) -> Option<u64> {
        std::fs::metadata(self.path()?).ok().filter(|file| file.is_file()).map(|file| file.len())
    }

    /// Returns the path of a file beside the imported one; `None` for standard input.
    fn beside(&self, ending: &str) -> Option<PathBuf> {
        self.path().map(|path| PathBuf::from(format!("{}.{ending}", path.display())))
    }

    pub(super) fn format(&self) -> Format {
        let is_csv = self.file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        self.format.unwrap_or(if is_csv { Format::Csv } else { Format::Ndjson })
    }

    /// Returns the path of the file that says how far the import is.
    pub(super) fn progress(&self) -> Option<PathBuf> {
        self.progress.clone().or_else(|| self.beside("progress"))
    }

    /// Returns the path of the file for lines that are no events. A dry run has none by default.
    pub(super) fn rejected(&self) -> Option<PathBuf> {
        self.rejected.clone().or_else(|| self.beside("rejected").filter(|_| !self.dry_run))
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

    fn settings(args: &[&str]) -> Result<ImportArgs, String> {
        let args = std::iter::once(&"import").chain(args);
        Line::try_parse_from(args).map(|line| line.import).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_keeps_its_place_beside_itself_and_standard_input_keeps_none() {
        let file = settings(&["likes.CSV"]).unwrap();
        assert_eq!((file.format(), file.progress()), (Format::Csv, Some("likes.CSV.progress".into())));
        assert_eq!(file.rejected(), Some("likes.CSV.rejected".into()));
        let input = settings(&["-"]).unwrap();
        assert_eq!((input.format(), input.progress(), input.rejected()), (Format::Ndjson, None, None));
        assert_eq!(settings(&["likes.csv", "--dry-run"]).unwrap().rejected(), None, "that of the import stays");
        assert_eq!(settings(&["-", "--progress", "p"]).unwrap().progress(), Some("p".into()));
        assert_eq!(settings(&["likes.csv", "--format", "ndjson"]).unwrap().format(), Format::Ndjson);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_its_flag() {
        for [flag, value] in
            [["--rate", "0"], ["--ts", "253402300800000"], ["--max-rejected", "many"], ["--format", "xml"]]
        {
            let said = settings(&["f", flag, value]).unwrap_err();
            assert!(said.contains(flag), "{flag} {value}: {said}");
        }
        assert!(settings(&[""]).is_err() && settings(&[]).is_err());
    }
}
