//! The lines under way, in the file's order: begun at the back, finished at the front.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use tally_core::event::{Rejection, partition_of};
use tally_core::fault::Fault;
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;

use super::lines::Line;

/// How many lines are under way at most, and about how many bytes.
const LINES: usize = 10_000;
const BYTES: usize = 16 << 20;

/// What a line turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing.
    Blank,
    /// The names of the columns.
    Header,
    Event(Event),
    Rejected(Wrong),
}

/// An event as a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// When it happened, if the line says so.
    pub(super) at: Option<UnixMillis>,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// Why a line is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl From<Rejection> for Wrong {
    fn from(rejection: Rejection) -> Self {
        Self { reason: rejection.reason(), message: rejection.to_string() }
    }
}

/// A line that is finished.
pub(super) struct Done {
    pub(super) line: Line,
    pub(super) fate: Fate,
}

type Sending = MaybeDone<BoxFuture<'static, Outcome<Written>>>;

struct UnderWay {
    line: Line,
    fate: Fate,
    /// The event on its way; `None` where nothing is sent.
    sending: Option<Sending>,
}

pub(super) struct Window {
    /// `None` in a dry run.
    producer: Option<Arc<dyn Producer>>,
    topic: Arc<str>,
    partitions: u32,
    lines: VecDeque<UnderWay>,
    bytes: usize,
}

impl Window {
    pub(super) fn new(producer: Option<Arc<dyn Producer>>, topic: &str, partitions: u32) -> Self {
        Self { producer, topic: topic.into(), partitions, lines: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.lines.len() < LINES && self.bytes < BYTES
    }

    /// Begins a line behind all others.
    pub(super) async fn push(&mut self, line: Line, fate: Fate) {
        let mut sending = self.sending(&fate);
        begin(&mut sending).await;
        self.bytes += weight(&line, &fate);
        self.lines.push_back(UnderWay { line, fate, sending });
    }

    /// Sends every event that is under way again, in order. Safe to repeat: whatever of them is in the log already is
    /// followed by all of them, so the last one about a user and a post is the same.
    pub(super) async fn send_again(&mut self) {
        for at in 0..self.lines.len() {
            let mut sending = self.sending(&self.lines[at].fate);
            begin(&mut sending).await;
            self.lines[at].sending = sending;
        }
    }

    /// Completes when the line at the front is finished. After a fault everything has to be sent again. Cancel safe;
    /// pending while nothing is under way.
    pub(super) async fn front(&mut self) -> Outcome<()> {
        let Some(front) = self.lines.front_mut() else { return std::future::pending().await };
        let (Some(sending), Fate::Event(event)) = (&mut front.sending, &front.fate) else { return Ok(()) };
        Pin::new(&mut *sending).await;
        let Some(written) = Pin::new(sending).take_output() else { return Ok(()) };
        // Taken: from here to the next `pop` or `send_again` the front is as good as finished.
        front.sending = None;
        let (found, expected) = (written?.partition, partition_of(&event.key, self.partitions));
        if found == expected {
            return Ok(());
        }
        Err(Fault::Fatal(format!(
            "an event came to partition {found} and belongs into {expected} of {}: were partitions added?",
            self.partitions
        )))
    }

    /// Takes the line at the front, which is finished.
    pub(super) fn pop(&mut self) -> Option<Done> {
        let UnderWay { line, fate, .. } = self.lines.pop_front()?;
        self.bytes -= weight(&line, &fate);
        Some(Done { line, fate })
    }

    fn sending(&self, fate: &Fate) -> Option<Sending> {
        let (Some(producer), Fate::Event(event)) = (&self.producer, fate) else { return None };
        let (producer, topic, event) = (Arc::clone(producer), Arc::clone(&self.topic), event.clone());
        Some(maybe_done(Box::pin(async move {
            let (key, value) = (Some(&*event.key), Some(&*event.value));
            producer.send(Outgoing { topic: &topic, partition: None, key, value, headers: &[] }).await
        })))
    }
}

/// Hands an event to the client, so that events reach its queue in order. What becomes of it is waited for later.
async fn begin(sending: &mut Option<Sending>) {
    let Some(sending) = sending else { return };
    std::future::poll_fn(|context| {
        let _ = Pin::new(&mut *sending).poll(context);
        Poll::Ready(())
    })
    .await;
}

fn weight(line: &Line, fate: &Fate) -> usize {
    let event = if let Fate::Event(event) = fate { event.key.len() + event.value.len() } else { 0 };
    256 + line.text.kept().len() + event
}
