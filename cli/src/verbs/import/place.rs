//! The two files that `tally import` writes, by default beside the imported one: its *place*, which is how far it is,
//! so that a later run goes on there; and the rejected lines, as NDJSON with the line's number, the reason, and its
//! text.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use tally_core::topic::TopicId;

use super::Format;
use super::lines::Line;
use super::parse::Wrong;

/// How many bytes of the first line are kept, to recognise the file.
const FIRST: usize = 200;
/// How many rejected lines are shown.
const SHOWN: usize = 5;
/// How many bytes of a line are kept.
const KEPT: usize = 1_000;

/// What identifies the import that a place belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whose {
    topic: String,
    /// The topic's id in Kafka: a topic that was created anew lacks what was sent before.
    topic_id: String,
    format: String,
    first_line: String,
}

impl Whose {
    pub(super) fn new(topic: &str, id: &TopicId, format: Format, first: &[u8]) -> Self {
        let first_line = String::from_utf8_lossy(&first[..first.len().min(FIRST)]).into_owned();
        let format = if format == Format::Csv { "csv" } else { "ndjson" };
        Self { topic: topic.to_owned(), topic_id: id.to_string(), format: format.to_owned(), first_line }
    }

    /// Says in what the two imports differ, if they do.
    fn difference(&self, other: &Self) -> Option<String> {
        let pairs = [
            ("topic", &self.topic, &other.topic),
            ("topic id", &self.topic_id, &other.topic_id),
            ("format", &self.format, &other.format),
            ("first line", &self.first_line, &other.first_line),
        ];
        let (what, was, is) = pairs.into_iter().find(|(_, was, is)| was != is)?;
        Some(format!("its {what} is {was:?}, and this import's is {is:?}"))
    }
}

/// How far an import is. Every event before it is acknowledged, and every line before it that is none is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    whose: Whose,
    pub(super) bytes: u64,
    /// The CRC-32 of those bytes, which tells whether the file still begins with them.
    pub(super) crc: u32,
    pub(super) lines: u64,
    pub(super) sent: u64,
    pub(super) blank: u64,
    /// Lines that are no events, by reason.
    pub(super) rejected: BTreeMap<String, u64>,
    /// How many bytes the file of rejected lines has.
    pub(super) rejected_bytes: u64,
    /// The file; `None` if the place is never written.
    #[serde(skip)]
    pub(super) path: Option<PathBuf>,
}

impl Place {
    /// Reads the place that is kept at `path`. Without such a file it is the beginning.
    ///
    /// # Errors
    /// The file cannot be read, is no place, or belongs to another import.
    pub(super) fn open(path: Option<PathBuf>, whose: Whose) -> anyhow::Result<Self> {
        let fresh = Self { whose, path, ..Self::default() };
        let Some(path) = fresh.path.as_ref().filter(|path| path.exists()) else { return Ok(fresh) };
        let named = || format!("`{}`, which says how far an import was", path.display());
        let kept = std::fs::read(path).with_context(|| format!("cannot read {}", named()))?;
        // A place of an earlier version has no `crc`: it does not say which bytes were imported.
        let understood = serde_json::from_slice(&kept).with_context(|| format!("cannot understand {}", named()));
        let kept: Self = understood.context(fresh.anew())?;
        if let Some(difference) = kept.whose.difference(&fresh.whose) {
            return Err(anyhow!(difference).context(fresh.anew()));
        }
        Ok(Self { path: fresh.path, ..kept })
    }

    /// Says that the import cannot go on at this place, and what to do instead.
    pub(super) fn anew(&self) -> String {
        let path = self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        format!(
            "`{path}` is of another import: remove it to import from the beginning, or name another with --progress"
        )
    }

    /// Writes the place to its file. Safe to repeat: a crash leaves the old place or the new one.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let new = PathBuf::from(format!("{}.new", path.display()));
        let mut file = File::create(&new)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        Ok(std::fs::rename(&new, path)?)
    }

    pub(super) fn rejected(&self) -> u64 {
        self.rejected.values().sum()
    }
}

pub(super) struct Rejected {
    /// The file; `None` if rejected lines are not kept.
    pub(super) path: Option<PathBuf>,
    /// The file, once a line was written to it.
    file: Option<File>,
    /// The first rejected lines, for people.
    pub(super) first: Vec<String>,
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    line: u64,
    reason: &'a str,
    message: &'a str,
    text: String,
}

impl Rejected {
    /// Goes on after the first `bytes` of the file, and cuts off the rest, which will be written again.
    pub(super) fn open(path: Option<PathBuf>, bytes: u64) -> anyhow::Result<Self> {
        let stale = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|file| file.len() > bytes);
        if let Some(path) = path.as_ref().filter(stale) {
            let cut = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(bytes));
            cut.with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(Self { path, file: None, first: Vec::new() })
    }

    /// Writes a rejected line. Returns by how many bytes the file has grown.
    pub(super) fn write(&mut self, line: &Line, wrong: &Wrong) -> anyhow::Result<u64> {
        if self.first.len() < SHOWN {
            self.first.push(format!("line {}: {}: {}", line.number, wrong.reason, wrong.message));
        }
        let Some(path) = &self.path else { return Ok(0) };
        let text = String::from_utf8_lossy(&line.text[..line.text.len().min(KEPT)]).into_owned();
        let entry = Entry { line: line.number, reason: wrong.reason, message: &wrong.message, text };
        let mut entry = serde_json::to_vec(&entry).expect("strings and integers always serialise");
        entry.push(b'\n');
        let named = || format!("cannot write `{}`", path.display());
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().create(true).append(true).open(path).with_context(named)?),
        };
        file.write_all(&entry).with_context(named)?;
        Ok(entry.len() as u64)
    }
}
