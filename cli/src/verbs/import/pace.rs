//! Lines at a rate: reads them ahead on a thread that may block, and hands each out when its turn has come.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use anyhow::Context;
use tally_service::Clock;
use tokio::task::JoinHandle;

use super::lines::{Line, Lines};

/// How late a turn may be taken: after an outage the lines of that time are not sent all at once.
const SLACK: Duration = Duration::from_millis(200);

pub(super) struct Paced {
    /// Between two turns; `None` without a rate.
    between: Option<Duration>,
    due: Duration,
    clock: Clock,
    ahead: VecDeque<Line>,
    /// The lines, unless a thread reads them.
    idle: Option<Lines>,
    reading: Option<JoinHandle<(Lines, io::Result<Vec<Line>>)>>,
    through: bool,
}

impl Paced {
    pub(super) fn new(lines: Lines, rate: Option<u32>, clock: Clock) -> Self {
        let between = rate.map(|rate| Duration::from_secs(1) / rate);
        let due = clock.reading().at;
        Self { between, due, clock, ahead: VecDeque::new(), idle: Some(lines), reading: None, through: false }
    }

    /// The next line when its turn has come; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Line>> {
        if self.ahead.is_empty() && !self.through {
            self.read().await?;
        }
        if let (Some(between), false) = (self.between, self.ahead.is_empty()) {
            let now = self.clock.reading().at;
            self.due = self.due.max(now.saturating_sub(SLACK));
            // Timers are as coarse as a millisecond: a turn that is nearer has come.
            if self.due > now + Duration::from_millis(1) {
                self.clock.sleep(self.due.saturating_sub(now)).await;
            }
            self.due += between;
        }
        Ok(self.ahead.pop_front())
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        if let Some(mut lines) = self.idle.take() {
            self.reading = Some(tokio::task::spawn_blocking(move || {
                let chunk = lines.chunk();
                (lines, chunk)
            }));
        }
        let Some(reading) = &mut self.reading else { return Ok(()) };
        let (lines, chunk) = reading.await.context("reading the file ended")?;
        (self.reading, self.idle) = (None, Some(lines));
        self.ahead = chunk.context("cannot read the file")?.into();
        self.through = self.ahead.is_empty();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_come_at_the_rate_and_an_outage_is_not_made_up_for() {
        let text = "x\n".repeat(300);
        let lines = Lines::new(Box::new(io::Cursor::new(text.into_bytes())));
        let clock = Clock::starting_at(UnixMillis(0));
        let mut paced = Paced::new(lines, Some(100), clock);
        for _ in 0..101 {
            paced.next().await.unwrap().unwrap();
        }
        let took = clock.reading().at;
        assert!((990..=1_010).contains(&took.as_millis()), "{took:?}");
        clock.sleep(Duration::from_secs(60)).await;
        let again = clock.reading().at;
        for _ in 0..100 {
            paced.next().await.unwrap().unwrap();
        }
        let took = clock.reading().at.saturating_sub(again);
        assert!((780..=1_010).contains(&took.as_millis()), "{took:?}");
        let mut left = 0;
        while paced.next().await.unwrap().is_some() {
            left += 1;
        }
        assert_eq!(left, 99);
    }
}
