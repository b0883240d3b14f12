//! Runs `tally import`: reads lines in chunks, parses them, sends the events to the topic of likes, and keeps the
//! place, which is how far it is.
//!
//! It sends events in the file's order, so the last line about a user and a post wins. After a fault it sends
//! everything from the failed event on again. An event says what is so, not what changes, so repeats end in the same
//! rows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use tally_core::event::partition_of;
use tally_core::fault::Fault;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, Producer, TopicReader};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host, Patience, Seldom, Stop, Until};

use super::ImportArgs;
use super::lines::{AT_ONCE, Line, Lines};
use super::parse::{Fate, Parser};
use super::place::{Place, Rejected, Whose};
use crate::desk::speaking;
use crate::health::say;
use crate::said::counted;

/// How often the place is written down, and how often progress is printed.
const NOTE_EVERY: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How much delay is made up for: after an outage the lines of that time are not sent all at once.
const SLACK: Duration = Duration::from_millis(200);

/// Where events go.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) reader: Arc<dyn TopicReader>,
    pub(super) producer: Arc<dyn Producer>,
    pub(super) topic: String,
}

/// What earlier runs did with the same file.
pub(super) struct Before {
    pub(super) lines: u64,
    sent: u64,
}

impl std::fmt::Display for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "behind line {}: {} events were sent before", self.lines, self.sent)
    }
}

/// An import under way.
pub(super) struct Import {
    to: Target,
    partitions: u32,
    patience: Patience,
    /// Never requested: an import that is interrupted ends as in a crash.
    stop: Stop,
    settings: ImportArgs,
    lines: Lines,
    parser: Parser,
    pace: Pace,
    /// How far the import is. The numbers include what earlier runs did with the same file.
    pub(super) place: Place,
    /// How many lines were finished, and how many events sent, before this run.
    pub(super) before: Before,
    pub(super) rejected: Rejected,
    /// The earliest and the latest time that an event of this run states.
    times: Option<[UnixMillis; 2]>,
    /// How many events of this run state no time.
    undated: u64,
    noted: Seldom,
    /// At which line progress was printed last, and when.
    said: (u64, Duration),
}

impl Import {
    /// Opens the file, and goes on at the place that an earlier import has kept.
    ///
    /// # Errors
    /// The file or the topic cannot be read, or the place belongs to another import.
    pub(super) async fn open(to: Target, settings: ImportArgs, host: &Host) -> anyhow::Result<Self> {
        let (patience, stop) = (speaking(host.patience()), host.stop());
        let topic = &to.topic;
        let look = format!("look at the topic `{topic}`");
        let logs = patience.persist(&look, Until::Requested(&stop), || to.reader.logs()).await?;
        let (_, log) = logs.first().with_context(|| format!("the topic `{topic}` has no partitions"))?;
        let mut lines = Lines::open(settings.path())?;
        let first = lines.first().context("cannot read the file")?;
        let parser = Parser::new(settings.format(), &first, settings.ts, settings.allow_old_times)?;
        let whose = Whose::new(topic, &log.topic, settings.format(), &first);
        let mut place = Place::open(settings.progress(), whose)?;
        let before = Before { lines: place.lines, sent: place.sent };
        lines.skip_to(place.bytes, place.lines, place.crc).with_context(|| place.anew())?;
        if settings.dry_run {
            place.path = None;
        } else if place.lines > 0 {
            say(&format!("going on {before}"));
        }
        let clock = patience.clock();
        let since = (place.lines, clock.reading().at);
        Ok(Self {
            partitions: u32::try_from(logs.len()).unwrap_or(u32::MAX),
            rejected: Rejected::open(settings.rejected(), place.rejected_bytes)?,
            pace: Pace { rate: settings.rate, due: since.1, clock },
            times: None,
            undated: 0,
            noted: Seldom::default(),
            said: since,
            lines,
            to,
            patience,
            stop,
            settings,
            parser,
            place,
            before,
        })
    }

    /// Imports the rest of the file. Safe to repeat: events that are sent again end in the same rows.
    ///
    /// # Errors
    /// The file cannot be read, the topic cannot be written, or there are more rejected lines than are allowed.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let ended = self.send_all().await;
        self.note()?;
        ended
    }

    async fn send_all(&mut self) -> anyhow::Result<()> {
        loop {
            // This blocks the thread while standard input has nothing. Nothing else runs in it meanwhile.
            let lines = self.lines.chunk(self.pace.at_once()).context("cannot read the file")?;
            if lines.is_empty() {
                return Ok(());
            }
            if !self.settings.dry_run {
                self.pace.turn(lines.len()).await;
            }
            let now = self.patience.clock().now();
            let fates: Vec<Fate> = lines.iter().map(|line| self.parser.fate(line, now)).collect();
            let (mut done, mut tries) = (0, 0);
            while done < lines.len() {
                let (acknowledged, fault) = if self.settings.dry_run {
                    (lines.len(), None)
                } else {
                    self.to.send_all(&fates[done..], self.partitions).await
                };
                for (line, fate) in lines.iter().zip(&fates).skip(done).take(acknowledged) {
                    self.finish(line, fate)?;
                }
                done += acknowledged;
                let Some(fault) = fault else { continue };
                if acknowledged > 0 {
                    tries = 0;
                }
                let what = format!("send line {}", self.place.lines + 1);
                self.patience.pause(&what, fault, &mut tries, Until::Requested(&self.stop)).await?;
            }
            self.keep_up()?;
        }
    }

    /// Counts a line that is finished, and moves the place behind it. Fails if too many lines are no events.
    fn finish(&mut self, line: &Line, fate: &Fate) -> anyhow::Result<()> {
        match fate {
            Fate::Blank => self.place.blank += 1,
            Fate::Header => {}
            Fate::Event(event) => {
                self.place.sent += 1;
                self.undated += u64::from(event.at.is_none());
                if let Some(at) = event.at {
                    let [first, last] = self.times.unwrap_or([at, at]);
                    self.times = Some([first.min(at), last.max(at)]);
                }
            }
            Fate::Rejected(wrong) => {
                self.place.rejected_bytes += self.rejected.write(line, wrong)?;
                *self.place.rejected.entry(wrong.reason.to_owned()).or_default() += 1;
            }
        }
        (self.place.bytes, self.place.crc, self.place.lines) = (line.end, line.crc, line.number);
        if let Fate::Rejected(wrong) = fate {
            let (most, number) = (self.settings.max_rejected, line.number);
            ensure!(
                self.place.rejected() <= most,
                "more than {most} lines are no events, the last one line {number}: {}; --max-rejected allows more",
                wrong.message
            );
        }
        Ok(())
    }

    /// Now and then writes the place down, and prints progress.
    fn keep_up(&mut self) -> anyhow::Result<()> {
        if self.noted.is_due(NOTE_EVERY) {
            self.note()?;
        }
        let now = self.patience.clock().reading().at;
        let since = now.saturating_sub(self.said.1);
        if since >= SAY_EVERY {
            let Place { lines, sent, bytes, .. } = self.place;
            let seconds = since.as_secs().max(1);
            let (rejected, per_second) = (self.place.rejected(), (lines - self.said.0) / seconds);
            let file = self.settings.path().and_then(|path| path.metadata().ok()).filter(std::fs::Metadata::is_file);
            let percent = file.map_or(String::new(), |file| format!(" ({} %)", bytes * 100 / file.len().max(1)));
            say(&format!(
                "{lines} lines{percent}, {per_second} a second: {sent} events, {rejected} lines that are none"
            ));
            self.said = (lines, now);
        }
        Ok(())
    }

    fn note(&self) -> anyhow::Result<()> {
        self.place.save().context("cannot write down how far the import is")
    }

    /// Says what the file has: its columns, the times of its events, and the lines that are no events.
    pub(super) fn found(&self) -> Vec<String> {
        let (columns, ignored) = self.parser.columns();
        let mut lines = Vec::new();
        if !columns.is_empty() {
            lines.push(format!("columns: {}", columns.join(", ")));
        }
        if !ignored.is_empty() {
            lines.push(format!("columns that are ignored: {}", ignored.join(", ")));
        }
        lines.extend(self.times.map(|[first, last]| format!("times: from {} to {}", first.date(), last.date())));
        if self.undated > 0 {
            let undated = self.undated;
            lines.push(format!("events that state no time: {undated}, which happened at --ts, or when they are sent"));
        }
        lines.extend(self.refused());
        lines.extend(self.rejected.first.clone());
        lines
    }

    /// Returns how many lines this run has finished, and how many events it has sent.
    pub(super) fn done(&self) -> (u64, u64) {
        (self.place.lines - self.before.lines, self.place.sent - self.before.sent)
    }

    /// Says what this run has imported and, if it was not the first, what all runs have, in one line.
    pub(super) fn said(&self) -> String {
        let ((done, new), Place { lines, sent, .. }) = (self.done(), &self.place);
        let all = (self.before.lines > 0).then(|| format!("; with earlier runs {sent} of {lines}"));
        let refused = self.refused().map_or(String::new(), |refused| format!(", {refused}"));
        let (new, done) = (counted(new, "event"), counted(done, "line"));
        format!("{new} sent of {done}{}{refused}", all.unwrap_or_default())
    }

    /// Says how many lines are no events and why, if there are any.
    fn refused(&self) -> Option<String> {
        let count = self.place.rejected();
        let reasons: Vec<String> =
            self.place.rejected.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let place = self.rejected.path.as_ref().map(|path| format!(", kept in {}", path.display()));
        let (reasons, place) = (reasons.join(", "), place.unwrap_or_default());
        (count > 0).then(|| format!("lines that are no events: {count} ({reasons}){place}"))
    }
}

impl Target {
    /// Hands all events to the client in order, and waits until they are acknowledged. Returns how many lines are
    /// finished before the first whose event fails, and its fault.
    async fn send_all(&self, fates: &[Fate], partitions: u32) -> (usize, Option<Fault>) {
        let sends: Vec<_> = fates.iter().map(|fate| self.send(fate, partitions).boxed()).collect();
        let mut sent = stream::iter(sends).buffered(AT_ONCE);
        let mut finished = 0;
        while let Some(answer) = sent.next().await {
            match answer {
                Ok(()) => finished += 1,
                Err(fault) => return (finished, Some(fault)),
            }
        }
        (finished, None)
    }

    /// Sends a line, if it is an event. Fails if Kafka puts it into another partition than its key says.
    async fn send(&self, fate: &Fate, partitions: u32) -> Outcome<()> {
        let Fate::Event(event) = fate else { return Ok(()) };
        let (key, value) = (Some(&*event.key), Some(&*event.value));
        let record = Outgoing { topic: &self.topic, partition: None, key, value, headers: &[] };
        let (found, expected) = (self.producer.send(record).await?.partition, partition_of(&event.key, partitions));
        if found == expected {
            return Ok(());
        }
        Err(Fault::Fatal(format!(
            "an event came to partition {found} and belongs into {expected} of {partitions}: were partitions added?"
        )))
    }
}

/// Limits how many lines are sent a second.
struct Pace {
    /// Lines a second.
    rate: u32,
    /// When the next lines may be sent.
    due: Duration,
    clock: Clock,
}

impl Pace {
    /// Returns how many lines are sent at once: those of a tenth of a second.
    fn at_once(&self) -> usize {
        (self.rate as usize / 10).clamp(1, AT_ONCE)
    }

    /// Waits until the next lines may be sent.
    async fn turn(&mut self, lines: usize) {
        let now = self.clock.reading().at;
        self.due = self.due.max(now.saturating_sub(SLACK));
        self.clock.sleep(self.due.saturating_sub(now)).await;
        self.due += Duration::from_secs(lines as u64) / self.rate;
    }
}

#[cfg(test)]
mod tests;
