//! What the consumer's task of a partition does once a second: it stores under its claim to the partition how far the
//! rows are, has Kafka commit that, and asks Kafka where the partition ends now.

use std::sync::Arc;

use tally_adapters::dynamodb::claims::Confirmed;
use tally_core::ports::{Outcome, OwnedPartition, TopicReader};
use tally_core::register::{LastRead, Standstill, unfit};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};

use super::{ASLEEP, EVERY, End, Held, Shared, TOPIC, condition};
use crate::metrics;

/// What shows whether the log has lost its tail, even if it has grown again.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// A record that had been read when Kafka was asked before. If another one is in its place, the log lost its tail.
    mark: Option<LastRead>,
    pub(super) has_regrown: bool,
    /// Kafka's last answer failed.
    is_away: bool,
}

impl Tail {
    pub(super) fn behind(mark: Option<LastRead>) -> Self {
        Self { mark, ..Self::default() }
    }
}

/// Reports whether the topic has partitions that no consumer reads.
pub(super) fn name_growth(shared: &Shared, partition: &Partition, found: u32, known: u32) {
    let readiness = shared.host.readiness();
    if found > known {
        let problem = format!(
            "`{}` has {found} partitions, and the {known} known ones alone are read: drain it, then `tally topic adopt`",
            partition.topic
        );
        readiness.not_ready(&condition(TOPIC, partition), problem);
    } else {
        readiness.forget(&condition(TOPIC, partition));
    }
}

impl Held {
    /// Begins what is to be done once a second, when it is time to. Returns the end, if one follows.
    pub(super) fn tick(&mut self) -> Option<End> {
        let now = self.shared.at();
        if now < self.keep_at {
            return None;
        }
        self.keep_at = now + EVERY;
        self.shared.misrouted.tell();
        // What is known of the store's clock does not go on while the machine sleeps.
        if self.shared.slept().abs_diff(self.slept) > ASLEEP {
            return Some(End::Again("the machine slept".to_owned()));
        }
        if !self.keeps {
            let (now, tombstones) = (self.shared.claims.time().latest, self.shared.settings.tombstones);
            if self.kept.has_grown_old(self.rereads_to, now, tombstones) {
                return Some(End::Again("what is read once more was removed long ago".to_owned()));
            }
            self.keep();
        }
        if !self.asks {
            self.ask();
        }
        None
    }

    /// Stores how far the rows are. Safe to repeat: the store takes it only while this claim is the last.
    pub(super) fn keep(&mut self) {
        let (claims, safe, sent) = (&self.shared.claims, self.progress.committable(), self.progress.next());
        let safe_at = self.ends.reached(safe);
        self.kept = self.kept.come_to([safe, sent], safe_at, claims.time().latest, self.shared.settings.tombstones);
        self.keeps = true;
        let (shared, log, n, kept) = (Arc::clone(&self.shared), Arc::clone(&self.log), self.n, self.kept.clone());
        // The next look at the log finds what was lost, too: the claim has the record that is there no more.
        let regrown =
            self.tail.mark.filter(|_| self.tail.has_regrown).map(|mark| Standstill::LogRegrown { at: mark.at });
        let work = async move { (shared.claims.keep(log.partition(), n, &kept).await, kept.safe) };
        self.begin(work, |held, (stored, safe)| {
            let is_stored = matches!(stored, Ok(Some(_)));
            held.stored(safe, stored).or(regrown.filter(|_| is_stored).map(End::Stands))
        });
    }

    /// Takes in that it was stored: Kafka may commit it. `None` says that another consumer has raised the claim.
    fn stored(&mut self, safe: Offset, stored: Outcome<Option<Confirmed>>) -> Option<End> {
        self.keeps = false;
        match stored {
            Ok(Some(confirmed)) => {
                self.confirmed = confirmed;
                self.unkept = 0;
                self.log.finished(safe);
                None
            }
            Ok(None) => Some(End::Again("another consumer has claimed it, or tally has raised the claim".to_owned())),
            Err(fault) => {
                metrics::RETRIES.counter(&["keep", fault.class()]).increment(1);
                self.unkept += 1;
                if self.unkept.is_power_of_two() {
                    let (partition, tries) = (self.log.partition(), self.unkept);
                    tracing::warn!(%partition, tries, error = %fault, "the store takes no claim: trying again");
                }
                None
            }
        }
    }

    fn ask(&mut self) {
        self.asks = true;
        let (shared, log, reached) = (Arc::clone(&self.shared), Arc::clone(&self.log), self.progress.committable());
        let (mark, last, topic) = (self.tail.mark, self.kept.last, self.topic.id.clone());
        let work = async move {
            let at = shared.claims.time().earliest;
            let said = look(&*log).await;
            // A topic that was created anew has other records, too, and is named as such.
            let is_in = |log: &Log, at| log.topic == topic && log.start <= at && at < log.end;
            let has = |at: Offset| said.as_ref().is_ok_and(|(log, _)| is_in(log, at));
            let asked = mark.map(|mark| mark.at).filter(|at| has(*at));
            let there = shared.reader.fingerprint(log.partition(), asked).await;
            (at, said, there)
        };
        // The end that Kafka names is not before what was reached when it was asked.
        self.begin(work, move |held, (at, said, there)| {
            held.asks = false;
            match there {
                Ok(Some(there)) if mark.is_some_and(|mark| mark.fingerprint != there) => {
                    (held.tail.has_regrown, held.kept.last) = (true, mark);
                    None
                }
                Ok(_) => {
                    // The first answer that fails may be that of a Kafka that is about to lose what was read last.
                    let was_away = std::mem::replace(&mut held.tail.is_away, said.is_err());
                    held.tail.mark = if was_away && said.is_err() { mark } else { last };
                    held.asked(at, reached, said)
                }
                Err(fault) => {
                    metrics::kafka_error(&fault);
                    None
                }
            }
        });
    }

    /// Takes in Kafka's end: if it is the same topic still, everything that was acknowledged by `at` is before this
    /// end.
    fn asked(&mut self, at: UnixMillis, reached: Offset, said: Outcome<(Log, u32)>) -> Option<End> {
        let (log, partitions) = match said {
            Ok(said) => said,
            Err(fault) => {
                metrics::kafka_error(&fault);
                return None;
            }
        };
        if let Some(standstill) = unfit(&self.topic, &log.topic, partitions) {
            return Some(End::Stands(standstill));
        }
        if reached > log.end {
            return Some(End::Stands(Standstill::BeyondLog { at: reached, end: log.end }));
        }
        let known = self.topic.current().partitions();
        name_growth(&self.shared, self.log.partition(), partitions, known);
        // Events of a key that is in a new partition by now are acknowledged there, and no consumer reads them.
        if partitions == known {
            self.ends.take(at, log.end);
        }
        self.look_ahead(log.end);
        self.show_lag(&log, at);
        None
    }

    /// If nothing was read since the last look although the log goes on, looks whether there are any records: the marks
    /// that transactions leave are none, and are not handed out.
    fn look_ahead(&mut self, end: Offset) {
        let next = self.progress.next();
        let is_idle = self.progress.kept() == 0 && self.reading.runs.next().is_none() && next < end;
        if !is_idle || self.idle_at.replace(next) != Some(next) || self.looks_ahead {
            self.idle_at = self.idle_at.filter(|_| is_idle);
            return;
        }
        self.looks_ahead = true;
        let (shared, log) = (Arc::clone(&self.shared), Arc::clone(&self.log));
        let work = async move { empty_to(&*shared.reader, log.partition(), next).await };
        self.begin(work, move |held, to| {
            held.looked_ahead(next, to);
            None
        });
    }

    /// Takes in that no record is before `to`, if nothing was read meanwhile.
    fn looked_ahead(&mut self, from: Offset, to: Outcome<Offset>) {
        self.looks_ahead = false;
        match to {
            Ok(to) if self.progress.next() == from && to > from => self.progress.reach(to),
            Ok(_) => {}
            Err(fault) => metrics::kafka_error(&fault),
        }
    }

    fn show_lag(&mut self, log: &Log, now: UnixMillis) {
        let reached = self.progress.committable();
        let written = self.reading.runs.first_from(reached).map(|record| record.at);
        self.shown.lag(self.log.partition(), [reached, log.end], written, now);
    }
}

/// Returns up to where a partition has no records from `from` on.
async fn empty_to(reader: &dyn TopicReader, partition: &Partition, from: Offset) -> Outcome<Offset> {
    // Nothing before this end can be decided otherwise any more.
    let end = reader.log(partition).await?.end;
    let read = reader.read(partition, from, end).await?;
    Ok(read.iter().next().map_or(end, |record| record.offset).max(from))
}

async fn look(log: &dyn OwnedPartition) -> Outcome<(Log, u32)> {
    // The end is read first, so the number of partitions is at least as new.
    let end = log.log().await?;
    Ok((end, log.partitions().await?))
}
