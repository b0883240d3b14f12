//! The load: users who like and unlike posts through a real Kafka producer.
//!
//! Every user belongs to one lane, and a lane writes its next event only once the one before is acknowledged, so the
//! order of one user's events is the order in which they are drawn. Where the outcome of a write is unknown the lane
//! writes the same event again until it is acknowledged: an event that is in the log twice changes nothing, and nothing
//! newer of that user can stand between the two.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tally_core::backoff::Backoff;
use tally_core::event::{Action, LikeEvent};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_service::{Chance, Stop, Stopped, Task};
use tokio::time::Instant;

use crate::config::LoadConfig;
use crate::engine::TOPIC;
use crate::local::Local;

use pace::Pace;

/// Events under way at once, at most.
const LANES: u32 = 4_096;

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
    /// Writes one event again and again until it is acknowledged. Safe to repeat: the event says what is, not what changes.
    pub(crate) async fn write(&self, post: usize, user: u32, action: Action, stop: &Stop) -> Result<(), Stopped> {
        let Local { ledger, clock, .. } = &*self.local;
        let (post_id, user_id) = (&ledger.names().posts()[post], ledger.names().user(user));
        let value = LikeEvent::new(post_id, &user_id, action, clock.now()).encode();
        let key = post_id.as_str().as_bytes();
        let record = Outgoing { topic: TOPIC, partition: None, key: Some(key), value: Some(&value), headers: &[] };
        let mut tries = 0;
        loop {
            match stop.unless_requested(self.producer.send(record)).await? {
                Ok(_) => break,
                Err(fault) => {
                    tracing::warn!(error = %fault, "an event was not acknowledged: it is written again");
                    let pause = AGAIN.wait(tries, self.chance.fraction());
                    stop.unless_requested(clock.sleep(pause)).await?;
                    tries += 1;
                }
            }
        }
        ledger.acknowledged(post, user, action);
        Ok(())
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
        let lanes = self.config.users.min(LANES);
        let lanes = (0..lanes).map(|first| {
            let draw = StdRng::seed_from_u64(self.seed ^ u64::from(first).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let lane = Lane { load: &self, pace: &pace, first, step: lanes, draw };
            lane.run(&stop)
        });
        join_all(lanes).await.into_iter().collect::<Result<(), Stopped>>()?;
        Ok(())
    }
}

/// Every `step`th user from the `first` on.
struct Lane<'a> {
    load: &'a Load,
    pace: &'a Pace,
    first: u32,
    step: u32,
    draw: StdRng,
}

impl Lane<'_> {
    async fn run(mut self, stop: &Stop) -> Result<(), Stopped> {
        while self.turn(stop).await? {
            let (post, user, action) = self.draw();
            self.load.writer.write(post, user, action, stop).await?;
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

    fn draw(&mut self) -> (usize, u32, Action) {
        let LoadConfig { posts, users, unlike_ratio, hot_share, .. } = self.load.config;
        let post = if self.draw.random_bool(hot_share) { 0 } else { self.draw.random_range(0..posts) };
        let mine = (users - self.first).div_ceil(self.step);
        let user = self.first + self.step * self.draw.random_range(0..mine);
        let action = if self.draw.random_bool(unlike_ratio) { Action::Unlike } else { Action::Like };
        (post as usize, user, action)
    }
}
