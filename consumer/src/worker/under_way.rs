//! The requests that are under way: one of the partition, and one of each lane.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tally_core::consume::{Effect, Input, Note};

use super::notes::Notes;
use super::requests::Requests;

#[derive(Default)]
pub(super) struct UnderWay {
    partition: Option<BoxFuture<'static, Input>>,
    lanes: FuturesUnordered<BoxFuture<'static, Input>>,
    /// What no answer is waited for.
    others: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl UnderWay {
    /// Begins `request`. The machine has one under way for each lane, and one for the partition.
    pub(super) fn begin(&mut self, request: Effect, requests: &Requests, notes: &Notes) {
        match &request {
            Effect::Commit(transaction) => {
                let span = notes.span(transaction.lane());
                self.lanes.push(requests.begin(request, &span));
            }
            Effect::ReadCells { lane, .. }
            | Effect::ReadMaps { lane, .. }
            | Effect::Locate { lane, .. }
            | Effect::BackOff { lane: Some(lane), .. } => {
                let span = notes.span(*lane);
                self.lanes.push(requests.begin(request, &span));
            }
            _ => self.partition = Some(requests.begin(request, &tracing::Span::none())),
        }
    }

    /// Begins what is not answered; it is dropped with the partition.
    pub(super) fn begin_aside(&mut self, aside: BoxFuture<'static, ()>) {
        self.others.push(aside);
    }

    /// The next answer; pending while nothing is under way. Cancel safe.
    pub(super) async fn next(&mut self) -> Input {
        loop {
            tokio::select! {
                biased;
                input = answer(&mut self.partition) => return input,
                Some(input) = self.lanes.next() => return input,
                Some(()) = self.others.next() => {}
                else => return std::future::pending().await,
            }
        }
    }

    /// Where the fences are read again, what lanes have asked for is not waited for.
    pub(super) fn heed(&mut self, note: &Note) {
        if matches!(note, Note::Loading(_)) {
            self.lanes.clear();
        }
    }
}

/// The answer of the one request; pending while there is none. Cancel safe.
async fn answer(request: &mut Option<BoxFuture<'static, Input>>) -> Input {
    let Some(under_way) = request else { return std::future::pending().await };
    let input = under_way.await;
    *request = None;
    input
}
