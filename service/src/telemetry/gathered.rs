//! A writer that gathers the events there is one of for every request, and writes many of them at once; every other event
//! is written where it stands, with all that was gathered before it.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The last part of the target of events that are gathered.
const GATHERED: &str = "::access";

/// How many bytes are gathered.
const MOST: usize = 64 * 1024;

/// How long an event may be gathered before it is written.
const LATEST: Duration = Duration::from_millis(100);

/// The writer. Clones share what is gathered.
pub(super) struct Gathered<W>(Arc<Shared<W>>);

impl<W> Clone for Gathered<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Shared<W> {
    state: Mutex<State<W>>,
    begun: Condvar,
}

struct State<W> {
    writer: W,
    lines: Vec<u8>,
}

impl<W: Write> State<W> {
    fn write_out(&mut self) -> io::Result<()> {
        let written = self.writer.write_all(&self.lines).and_then(|()| self.writer.flush());
        // Nobody could be told of a log that cannot be written.
        self.lines.clear();
        written
    }
}

impl<W: Write + Send + 'static> Gathered<W> {
    /// Gathers what goes to `writer`. [`attend`](Self::attend) has to run beside.
    pub(super) fn new(writer: W) -> Self {
        let state = Mutex::new(State { writer, lines: Vec::with_capacity(MOST) });
        Self(Arc::new(Shared { state, begun: Condvar::new() }))
    }

    /// Writes what was gathered when its time has come, for ever.
    #[expect(clippy::disallowed_methods, reason = "on a thread of its own")]
    pub(super) fn attend(&self) {
        loop {
            let begun = self.0.begun.wait_while(self.state(), |state| state.lines.is_empty());
            drop(begun);
            // Asleep and not waiting: under load, every first line would wake this thread, to write that line alone.
            thread::sleep(LATEST);
            self.write_out();
        }
    }

    /// Writes what was gathered.
    pub(super) fn write_out(&self) {
        let _ = self.state().write_out();
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut state = self.gathered.state();
        let first = state.lines.is_empty();
        state.lines.extend_from_slice(event);
        if self.at_once || state.lines.len() >= MOST {
            state.write_out()?;
        } else if first {
            self.gathered.0.begun.notify_one();
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gathered.state().write_out()
    }
}
