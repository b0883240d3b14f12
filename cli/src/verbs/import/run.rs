//! Sends likes from a file to the topic of likes, where the consumers write them like any others.
//!
//! Events are sent in the file's order, so the last line about a user and a post wins. After a fault everything from the
//! failed event on is sent again, in that order: an event says what is, not what changes, so repeats end in the same rows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use tally_core::ports::{Producer, TopicReader};
use tally_core::time::UnixMillis;
use tally_service::{Host, Patience, Stop, Stopped, Until};

use super::args::ImportArgs;
use super::lines::Lines;
use super::pace::Paced;
use super::parse::Parser;
use super::place::{Place, Whose};
use super::rejected::Rejected;
use super::window::{Fate, Window};

/// How often the place is written down, and how often the log says how far the import is.
const NOTE_EVERY: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Sends the lines of one file.
pub(super) struct Import {
    pub(super) reader: Arc<dyn TopicReader>,
    pub(super) producer: Arc<dyn Producer>,
    pub(super) topic: String,
    pub(super) host: Host,
    pub(super) settings: ImportArgs,
}

/// What an import came to, what earlier ones of the same file did included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Imported {
    pub(super) lines: u64,
    /// Events that Kafka has acknowledged; in a dry run those that would be sent.
    pub(super) sent: u64,
    pub(super) blank: u64,
    /// Lines that are no events, by reason.
    pub(super) rejected: BTreeMap<String, u64>,
    /// Where these lines are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejected_in: Option<PathBuf>,
    /// The columns of a CSV file that were read, and those that were not.
    pub(super) columns: Vec<String>,
    pub(super) ignored: Vec<String>,
    /// The first and the last time that an event states, of those that were not imported earlier.
    pub(super) times: Option<[UnixMillis; 2]>,
    /// How many of these state none.
    pub(super) undated: u64,
}

impl Imported {
    /// What the file has, a line each: its columns, and the times of its events.
    pub(super) fn described(&self) -> Vec<String> {
        let Self { columns, ignored, times, undated, .. } = self;
        let mut lines = Vec::new();
        if !columns.is_empty() {
            lines.push(format!("columns: {}", columns.join(", ")));
        }
        if !ignored.is_empty() {
            lines.push(format!("columns that are ignored: {}", ignored.join(", ")));
        }
        lines.extend(times.map(|[first, last]| format!("times: from {} to {}", first.date(), last.date())));
        if *undated > 0 {
            lines.push(format!("events that state no time: {undated}, which happened at --ts, or when they are sent"));
        }
        lines
    }
}

/// An import under way.
struct Run {
    patience: Patience,
    settings: ImportArgs,
    parser: Parser,
    window: Window,
    place: Place,
    rejected: Rejected,
    times: Option<[UnixMillis; 2]>,
    undated: u64,
    /// The place as it was when it was last written down, and when that and the last log line were.
    noted: (u64, Duration),
    said: (u64, Duration),
}

impl Import {
    /// Imports what the place does not say is imported; what it came to, and how it ended. Safe to repeat: what was sent and not
    /// noted is sent again.
    ///
    /// # Errors
    /// A file or a topic that cannot be read; where it ended early, a topic that cannot be written, more rejected lines than are
    /// allowed, or a stop.
    pub(super) async fn carry_out(self, stop: &Stop) -> anyhow::Result<(Imported, anyhow::Result<()>)> {
        let (mut run, lines) = self.open(stop).await?;
        let rate = if run.settings.dry_run { None } else { Some(run.settings.rate) };
        let mut paced = Paced::new(lines, rate, run.patience.clock());
        let end = run.send_all(&mut paced, stop).await;
        run.note()?;
        Ok((run.imported(), end))
    }

    async fn open(self, stop: &Stop) -> anyhow::Result<(Run, Lines)> {
        let Self { reader, producer, topic, host, settings } = self;
        let patience = host.patience().on_fault(|what, fault, tries| {
            if tries.is_power_of_two() {
                tracing::warn!(tries, error = %fault, "cannot {what}: trying again");
            }
        });
        let look = format!("look at the topic `{topic}`");
        let logs = patience.persist(&look, Until::Requested(stop), || reader.logs()).await?;
        let partitions = u32::try_from(logs.len()).unwrap_or(u32::MAX);
        let Some((_, log)) = logs.into_iter().next() else { anyhow::bail!("the topic `{topic}` has no partitions") };
        let mut lines = Lines::open(&settings.file)?;
        let first = lines.first().context("cannot read the file")?;
        let mut parser = Parser::new(settings.format(), &first, settings.ts, settings.allow_old_times)?;
        let whose = Whose::new(&topic, &log.topic, settings.format(), &first);
        let kept = settings.progress().filter(|_| !settings.dry_run);
        let place = Place::open(kept.as_deref(), whose)?;
        if place.lines > 0 {
            parser.behind_the_first();
            tracing::info!(lines = place.lines, sent = place.sent, "going on behind what was imported before");
        }
        lines.skip_to(place.bytes, place.lines).context("cannot go on where the import was")?;
        let rejected = Rejected::open(settings.rejected(), place.rejected_bytes)?;
        let producer = (!settings.dry_run).then_some(producer);
        let window = Window::new(producer, &topic, partitions);
        let now = patience.clock().reading().at;
        let (noted, said) = ((place.lines, now), (place.lines, now));
        let (times, undated) = (None, 0);
        Ok((Run { patience, settings, parser, window, place, rejected, times, undated, noted, said }, lines))
    }
}

impl Run {
    async fn send_all(&mut self, lines: &mut Paced, stop: &Stop) -> anyhow::Result<()> {
        let (mut through, mut tries) = (false, 0);
        while !(through && self.window.is_empty()) {
            let room = !through && self.window.has_room();
            tokio::select! {
                biased;
                () = stop.requested() => return Err(Stopped.into()),
                done = self.window.front(), if !self.window.is_empty() => match done {
                    Ok(()) => {
                        tries = 0;
                        self.finish()?;
                    }
                    Err(fault) => {
                        let what = format!("send line {}", self.place.lines + 1);
                        self.patience.pause(&what, fault, &mut tries, Until::Requested(stop)).await?;
                        self.window.send_again().await;
                    }
                },
                line = lines.next(), if room => match line? {
                    Some(line) => {
                        let fate = self.parser.fate(&line.text, self.patience.clock().now());
                        self.window.push(line, fate).await;
                    }
                    None => through = true,
                },
            }
            self.keep_up()?;
        }
        Ok(())
    }

    /// Counts the line at the window's front, whose fate is known.
    fn finish(&mut self) -> anyhow::Result<()> {
        let Some(done) = self.window.pop() else { return Ok(()) };
        match &done.fate {
            Fate::Blank => self.place.blank += 1,
            Fate::Header => {}
            Fate::Event(event) => {
                self.place.sent += 1;
                match (event.at, self.times) {
                    (None, _) => self.undated += 1,
                    (Some(at), None) => self.times = Some([at, at]),
                    (Some(at), Some([first, last])) => self.times = Some([first.min(at), last.max(at)]),
                }
            }
            Fate::Rejected(wrong) => {
                self.place.reject(wrong.reason);
                self.place.rejected_bytes = self.rejected.write(&done.line, wrong)?;
            }
        }
        (self.place.bytes, self.place.lines) = (done.line.end, done.line.number);
        if let Fate::Rejected(wrong) = &done.fate {
            let (most, number) = (self.settings.max_rejected, done.line.number);
            ensure!(
                self.place.rejected() <= most,
                "more than {most} lines are no events, the last one line {number}: {}; --max-rejected allows more",
                wrong.message
            );
        }
        Ok(())
    }

    /// Writes the place down, and says how far it is, each now and then.
    fn keep_up(&mut self) -> anyhow::Result<()> {
        let now = self.patience.clock().reading().at;
        if self.noted.0 != self.place.lines && now.saturating_sub(self.noted.1) >= NOTE_EVERY {
            self.note()?;
            self.noted = (self.place.lines, now);
        }
        let since = now.saturating_sub(self.said.1);
        if since >= SAY_EVERY {
            let Place { lines, sent, bytes, .. } = self.place;
            let seconds = since.as_secs().max(1);
            let (rejected, per_second) = (self.place.rejected(), (lines - self.said.0) / seconds);
            let percent = self.settings.file.size().map(|size| bytes * 100 / size.max(1));
            tracing::info!(lines, sent, rejected, per_second, percent, "importing");
            self.said = (lines, now);
        }
        Ok(())
    }

    fn note(&self) -> anyhow::Result<()> {
        self.place.save().context("cannot write down how far the import is")
    }

    fn imported(&self) -> Imported {
        let Place { lines, sent, blank, .. } = self.place;
        let rejected: BTreeMap<String, u64> =
            self.place.reasons().map(|(reason, count)| (reason.to_owned(), count)).collect();
        let path = self.rejected.path().filter(|_| !rejected.is_empty());
        let (columns, ignored) = self.parser.columns();
        let (rejected_in, times, undated) = (path.map(Into::into), self.times, self.undated);
        Imported { lines, sent, blank, rejected, rejected_in, columns, ignored, times, undated }
    }
}

#[cfg(test)]
mod tests;
