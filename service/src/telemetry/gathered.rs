//! A writer that gathers the events logged for every request and writes many of them at once, on a thread of its own, so
//! that no request waits for a disk. Every other event is written at once, after all that was gathered before it.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The last part of the target of events that are gathered.
const GATHERED: &str = "::access";

/// How many bytes are worth a write.
const MANY: usize = 64 * 1024;

/// How many bytes are gathered while a write is under way; past them, the thread that logs waits for the write.
const MOST: usize = 4 * 1024 * 1024;

/// How long an event may be gathered before it is written.
const LATEST: Duration = Duration::from_millis(100);

/// Clones share what is gathered.
pub(super) struct Gathered<W>(Arc<Shared<W>>);

impl<W> Clone for Gathered<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<W> {
    lines: Mutex<Vec<u8>>,
    /// Locked before `lines` are taken and until they are written, so that lines keep their order.
    out: Mutex<Out<W>>,
    begun: Condvar,
    many: Condvar,
}

struct Out<W> {
    writer: W,
    /// What is being written, and room for lines from then on.
    taken: Vec<u8>,
}

impl<W: Write + Send + 'static> Gathered<W> {
    /// Gathers what goes to `writer`; a thread has to run [`attend`](Self::attend).
    pub(super) fn new(writer: W) -> Self {
        let [lines, taken] = [Vec::with_capacity(MANY), Vec::with_capacity(MANY)];
        let out = Mutex::new(Out { writer, taken });
        Self(Arc::new(Shared { lines: Mutex::new(lines), out, begun: Condvar::new(), many: Condvar::new() }))
    }

    /// Writes what was gathered when there is much of it or it has waited long enough; never returns.
    pub(super) fn attend(&self) {
        let Shared { begun, many, .. } = &*self.0;
        loop {
            // Woken by the first line, this thread would write that line alone.
            let few = |lines: &mut Vec<u8>| lines.len() < MANY;
            let mut lines = self.0.lines.lock();
            many.wait_while_for(&mut lines, few, LATEST);
            if lines.is_empty() {
                begun.wait_while(&mut lines, |lines| lines.is_empty());
            } else {
                drop(lines);
                // A log that cannot be written has no place to say so.
                let _ = self.write_out();
            }
        }
    }

    pub(super) fn write_out(&self) -> io::Result<()> {
        let mut out = self.0.out.lock();
        let Out { writer, taken } = &mut *out;
        mem::swap(taken, &mut *self.0.lines.lock());
        let written = writer.write_all(taken).and_then(|()| writer.flush());
        taken.clear();
        taken.shrink_to(MANY);
        written
    }
}

impl<W: Write + Send + 'static> MakeWriter<'_> for Gathered<W> {
    type Writer = Lines<W>;

    fn make_writer(&self) -> Lines<W> {
        Lines { gathered: self.clone(), at_once: true }
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> Lines<W> {
        let at_once = *meta.level() < Level::INFO || !meta.target().ends_with(GATHERED);
        Lines { gathered: self.clone(), at_once }
    }
}

/// The writer of one event, which is handed over whole.
pub(super) struct Lines<W> {
    gathered: Gathered<W>,
    at_once: bool,
}

impl<W: Write + Send + 'static> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let Shared { begun, many, .. } = &*self.gathered.0;
        let mut lines = self.gathered.0.lines.lock();
        let before = lines.len();
        lines.extend_from_slice(event);
        let now = lines.len();
        drop(lines);
        if self.at_once || now >= MOST {
            self.gathered.write_out()?;
        } else {
            if before == 0 {
                begun.notify_one();
            }
            if before < MANY && now >= MANY {
                many.notify_one();
            }
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gathered.write_out()
    }
}
