//! Writes the lines of an import that are no events to a file of NDJSON: the line's number, the reason, and its text.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::lines::Line;
use super::parse::Wrong;

/// How many rejected lines are shown.
const SHOWN: usize = 5;
/// How many bytes of a line are kept.
const KEPT: usize = 1_000;

pub(super) struct Rejected {
    /// The file; `None` if rejected lines are not kept.
    pub(super) path: Option<PathBuf>,
    /// The open file, once there is a rejected line.
    file: Option<File>,
    bytes: u64,
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
        Ok(Self { path, file: None, bytes, first: Vec::new() })
    }

    /// Writes a rejected line. Returns how many bytes the file has then.
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
        if self.file.is_none() {
            self.file = Some(OpenOptions::new().create(true).append(true).open(path).with_context(named)?);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&entry).with_context(named)?;
        }
        self.bytes += entry.len() as u64;
        Ok(self.bytes)
    }
}
