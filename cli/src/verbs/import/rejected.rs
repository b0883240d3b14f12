//! The lines that are no events, as a file of NDJSON: which line, why, and what it says.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use anyhow::Context;

use super::lines::Line;
use super::parse::Wrong;

/// How many are shown.
const SHOWN: usize = 5;
/// How much of a line is kept.
const KEPT: usize = 1_000;

pub(super) struct Rejected {
    /// Where they are.
    pub(super) path: Option<PathBuf>,
    /// Opened for the first one.
    file: Option<File>,
    bytes: u64,
    /// The first ones, for people.
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
    /// Goes on behind the first `bytes` of the file: what is behind them is written again.
    pub(super) fn open(path: Option<PathBuf>, bytes: u64) -> anyhow::Result<Self> {
        let stale = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|file| file.len() > bytes);
        if let Some(path) = path.as_ref().filter(stale) {
            let cut = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(bytes));
            cut.with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(Self { path, file: None, bytes, first: Vec::new() })
    }

    /// Writes one; how long the file is then.
    pub(super) fn write(&mut self, line: &Line, wrong: &Wrong) -> anyhow::Result<u64> {
        if self.first.len() < SHOWN {
            self.first.push(format!("line {}: {}: {}", line.number, wrong.reason, wrong.message));
        }
        let Some(path) = &self.path else { return Ok(0) };
        let kept = line.text.kept();
        let text = String::from_utf8_lossy(&kept[..kept.len().min(KEPT)]).into_owned();
        let entry = Entry { line: line.number, reason: wrong.reason, message: &wrong.message, text };
        let mut entry = serde_json::to_vec(&entry).expect("strings and integers always serialise");
        entry.push(b'\n');
        let named = || format!("cannot write `{}`", path.display());
        if self.file.is_none() {
            let mut file =
                OpenOptions::new().create(true).truncate(false).write(true).open(path).with_context(named)?;
            file.seek(SeekFrom::Start(self.bytes)).with_context(named)?;
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&entry).with_context(named)?;
        }
        self.bytes += entry.len() as u64;
        Ok(self.bytes)
    }
}
