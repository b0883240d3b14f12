//! The load: users who like, retweet, reply, view and use hashtags through a real Kafka producer.
//!
//! Every user belongs to one lane, and so does every reply and every post with a hashtag. A lane writes its next event only
//! once the one before is acknowledged, so the order of one member's events is the order in which they are drawn. Where the
//! outcome of a write is unknown the lane writes the same event again until it is acknowledged: an event of a set that is in
//! the log twice changes nothing, and nothing newer of that member can stand between the two.
//!
//! A view is written once: in the log twice it counts twice. The producer is idempotent, so what it repeats by itself is in
//! the log once; but where it gives a record up, that record may be in the log or not, and the ledger has its amount as
//! open.

mod draw;
mod pace;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tally_core::backoff::Backoff;
use tally_core::definitions::Direction;
use tally_core::event::{Said, encode};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_service::{Chance, Stop, Stopped, Task};
use tokio::time::Instant;

use crate::config::LoadConfig;
use crate::counters::Counted;
use crate::engine::TOPIC;
use crate::ledger::{Deed, Event};
use crate::local::Local;

use draw::Draw;
use pace::Pace;

/// Between two tries of the same event.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_secs(1) };

/// Writes events, and records them in the ledger once they are acknowledged. Load and probes write through it.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) local: Arc<Local>,
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) chance: Chance,
}

impl Writer {
    /// Writes one event: of a set again and again until it is acknowledged, of a sum once. An event of a counter that the
    /// deployment has not is left out.
    pub(crate) async fn write(&self, event: Event, stop: &Stop) -> Result<(), Stopped> {
        let Local { ledger, clock, .. } = &*self.local;
        let Some(value) = self.value(event) else { return Ok(()) };
        let key = ledger.names().subjects(event.deed.counted())[event.subject].as_str().as_bytes();
        let partition = self.partition(event);
        let record = Outgoing { topic: TOPIC, partition, key: Some(key), value: Some(&value), headers: &[] };
        let mut tries = 0;
        loop {
            let Err(fault) = stop.unless_requested(self.producer.send(record)).await? else { break };
            if let Deed::View { amount } = event.deed {
                tracing::warn!(error = %fault, "a view was not acknowledged: it may count or not");
                ledger.unknown_view(event.subject, amount);
                return Ok(());
            }
            tracing::warn!(error = %fault, "an event was not acknowledged: it is written again");
            let pause = AGAIN.wait(tries, self.chance.fraction());
            stop.unless_requested(clock.sleep(pause)).await?;
            tries += 1;
        }
        ledger.acknowledged(event);
        Ok(())
    }

    /// Where a view goes; `None` leaves it to the key, as all else.
    fn partition(&self, event: Event) -> Option<u32> {
        let Local { ledger, counters, sums, clock, .. } = &*self.local;
        let Deed::View { .. } = event.deed else { return None };
        let counter = counters.id(Counted::Views, &ledger.names().posts()[event.subject])?;
        sums.partition(TOPIC, &counter, clock.reading().at, self.chance.token())
    }

    fn value(&self, event: Event) -> Option<Vec<u8>> {
        let Local { ledger, counters, clock, .. } = &*self.local;
        let Event { subject, region, deed } = event;
        let (names, definition) = (ledger.names(), counters.definition(deed.counted())?);
        let (subject, region) = (&names.subjects(deed.counted())[subject], &names.regions()[region]);
        let of = |direction, member| {
            encode(definition, subject.as_str(), direction, Said::Member(&member), Some(region), clock.now())
        };
        match deed {
            Deed::Like { user, direction } | Deed::Retweet { user, direction } => of(direction, names.user(user)),
            Deed::Reply { reply, direction } => of(direction, names.reply(reply)),
            Deed::Use { tagged, direction } => of(direction, names.tagged(tagged)),
            Deed::View { amount } => {
                encode(definition, subject.as_str(), Direction::Add, Said::Amount(amount), None, clock.now())
            }
        }
    }
}

/// Writes events at a rate until its time is over.
pub(crate) struct Load {
    pub(crate) writer: Writer,
    pub(crate) config: LoadConfig,
    pub(crate) seed: u64,
    pub(crate) until: Option<Instant>,
}

impl Task for Load {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let pace = Pace::new(self.config.rate);
        let names = self.writer.local.ledger.names();
        let lanes = (0..names.lanes()).map(|lane| {
            let draw = Draw::new(self.config, self.seed, lane, names);
            Lane { load: &self, pace: &pace, lane, draw }.run(&stop)
        });
        join_all(lanes).await.into_iter().collect::<Result<(), Stopped>>()?;
        Ok(())
    }
}

/// A part of the users, and what they say one after the other.
struct Lane<'a> {
    load: &'a Load,
    pace: &'a Pace,
    lane: u32,
    draw: Draw,
}

impl Lane<'_> {
    async fn run(mut self, stop: &Stop) -> Result<(), Stopped> {
        let writer = &self.load.writer;
        while self.turn(stop).await? {
            let event = self.draw.event(|counted| writer.local.ledger.made(counted).live(self.lane));
            writer.write(event, stop).await?;
        }
        Ok(())
    }

    /// Waits for the next turn; `false` once the time is over.
    async fn turn(&self, stop: &Stop) -> Result<bool, Stopped> {
        let Load { writer, until, .. } = self.load;
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until(*until).await,
                None => std::future::pending().await,
            }
        };
        let turn = async {
            writer.local.control.going().await;
            tokio::time::sleep_until(self.pace.next()).await;
        };
        stop.unless_requested(async {
            tokio::select! {
                biased;
                () = over => false,
                () = turn => true,
            }
        })
        .await
    }
}
