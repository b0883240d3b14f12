//! A writer that buffers the events logged for every request and writes many of them at once, on its own thread, so
//! that no request waits for a disk. Every other event is written at once, after everything buffered before it.
//!
//! Lines that cannot be written are dropped and counted: a full disk or a closed pipe does not end the process.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::metrics::DROPPED_LINES as DROPPED;

/// The last part of the target of buffered events.
const GATHERED: &str = "::access";

/// The number of buffered bytes that are worth a write.
const MANY: usize = 64 * 1024;

/// The capacity of the buffer while a write is under way. When it is full, the logging thread waits for the write.
const MOST: usize = 4 * 1024 * 1024;

/// How long an event may stay in the buffer.
const LATEST: Duration = Duration::from_millis(100);

/// Clones share the buffer.
pub(super) struct Gathered<W>(Arc<Shared<W>>);

impl<W> Clone for Gathered<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<W> {
    lines: Mutex<Lines>,
    /// Locked before `lines` are taken and until they are written, so that lines keep their order.
    out: Mutex<Out<W>>,
    /// Notified when there are lines, and when there are many.
    more: Condvar,
}

/// The buffered lines.
struct Lines {
    bytes: Vec<u8>,
    /// Lines dropped while the log could not be written, until that is logged.
    dropped: u64,
}

impl Lines {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.dropped == 0
    }
}

struct Out<W> {
    writer: W,
    /// The lines being written, and the spare buffer afterwards.
    taken: Vec<u8>,
    /// Whether the last line was only partly written.
    torn: bool,
    /// Lines dropped since the last successful write.
    dropped: u64,
}

impl<W: Write> Out<W> {
    /// Writes the taken lines as far as possible. Returns how many were dropped before, once writing works again.
    fn put(&mut self) -> u64 {
        let Self { writer, taken, torn, dropped } = self;
        // The rest of a partly written line is lost.
        let resumed = if *torn && !taken.is_empty() { write_some(writer, b"\n") == 1 } else { true };
        let written = if resumed { write_some(writer, taken) } else { 0 };
        let _ = writer.flush();
        if written > 0 {
            *torn = taken[written - 1] != b'\n';
        }
        let lost = taken[written..].iter().filter(|byte| **byte == b'\n').count() as u64;
        taken.clear();
        taken.shrink_to(MANY);
        if lost > 0 {
            counter!(DROPPED.name).increment(lost);
            *dropped += lost;
            return 0;
        }
        if written > 0 { mem::take(dropped) } else { 0 }
    }
}

/// Writes until everything is written or the writer fails, and returns the number of bytes written.
fn write_some(writer: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match writer.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

impl<W: Write + Send + 'static> Gathered<W> {
    /// Buffers the lines for `writer`. A thread has to run [`attend`](Self::attend).
    pub(super) fn new(writer: W) -> Self {
        let [bytes, taken] = [Vec::with_capacity(MANY), Vec::with_capacity(MANY)];
        let out = Mutex::new(Out { writer, taken, torn: false, dropped: 0 });
        let lines = Mutex::new(Lines { bytes, dropped: 0 });
        Self(Arc::new(Shared { lines, out, more: Condvar::new() }))
    }

    /// Writes the buffer when it is large enough or old enough. Never returns.
    pub(super) fn attend(&self) {
        let more = &self.0.more;
        loop {
            // Waiting for more lines keeps this thread from writing the first one alone.
            let few = |lines: &mut Lines| lines.bytes.len() < MANY && lines.dropped == 0;
            let mut lines = self.0.lines.lock();
            more.wait_while_for(&mut lines, few, LATEST);
            if lines.is_empty() {
                more.wait_while(&mut lines, |lines| lines.is_empty());
                continue;
            }
            let dropped = mem::take(&mut lines.dropped);
            drop(lines);
            self.write_out();
            if dropped > 0 {
                tracing::warn!(
                    lines = dropped,
                    "log lines were dropped because they could not be written to standard error"
                );
            }
        }
    }

    pub(super) fn write_out(&self) {
        let mut out = self.0.out.lock();
        mem::swap(&mut out.taken, &mut self.0.lines.lock().bytes);
        let dropped = out.put();
        drop(out);
        if dropped > 0 {
            self.0.lines.lock().dropped += dropped;
            self.0.more.notify_one();
        }
    }
}

impl<W: Write + Send + 'static> MakeWriter<'_> for Gathered<W> {
    type Writer = EventWriter<W>;

    fn make_writer(&self) -> EventWriter<W> {
        EventWriter { gathered: self.clone(), at_once: true }
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> EventWriter<W> {
        let at_once = *meta.level() < Level::INFO || !meta.target().ends_with(GATHERED);
        EventWriter { gathered: self.clone(), at_once }
    }
}

/// The writer of one event, which is handed over whole. It never fails, since the error would be printed to the same
/// standard error and end the process.
pub(super) struct EventWriter<W> {
    gathered: Gathered<W>,
    at_once: bool,
}

impl<W: Write + Send + 'static> Write for EventWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let mut lines = self.gathered.0.lines.lock();
        let before = lines.bytes.len();
        lines.bytes.extend_from_slice(event);
        let now = lines.bytes.len();
        drop(lines);
        if self.at_once || now >= MOST {
            self.gathered.write_out();
        } else if before == 0 || before < MANY && now >= MANY {
            self.gathered.0.more.notify_one();
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gathered.write_out();
        Ok(())
    }
}
