//! A consumer of the model: the real machine, and what it has asked for.

use std::sync::Arc;
use std::time::Duration;

use tally_core::batch::BatchLimits;
use tally_core::consume::{Consume, Effect, Input, LanePolicy, Setup};
use tally_core::event::KeyScheme;
use tally_core::fence::{Fence, Offset, Partition};
use tally_core::ids::{LaneCount, ShardCount};
use tally_core::ports::log::Records;
use tally_core::time::{Now, UnixMillis};

use super::table::{Request, definitions};
use super::{Counters, Rule, Said};

const AGE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Consumer {
    pub(super) machine: Consume,
    pub(super) ask: Option<Ask>,
    /// How many records it was handed.
    pub(super) at: usize,
    /// What a mutant read of the list before its records.
    stale: bool,
    /// The request that a mutant sends again once it has read the fence.
    pub(super) kept: Option<Request>,
}

/// What the machine asks of what consumers share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Fence,
    Log,
    Create(Fence),
    Replace { seen: Fence, by: Fence },
    Definitions,
    Cells,
    Commit(Request),
}

impl Consumer {
    pub(super) fn assigned(rules: &Counters) -> Self {
        let limits = BatchLimits { rows: 4, bytes: usize::MAX, age: AGE };
        let partition = Partition { topic: "likes".into(), index: 0 };
        let machine = Consume::new(Setup {
            partition,
            limits,
            key: KeyScheme::Post,
            shards: ShardCount::DEFAULT,
            lanes: LanePolicy::Pinned(LaneCount::ONE),
        });
        let mut consumer = Self { machine, ask: None, at: 0, stale: false, kept: None };
        consumer.take(Input::Assigned, false, rules);
        consumer
    }

    /// The machine is told `input`. Answers the dead letters that were stored, a bit each: nothing is lost of them here.
    pub(super) fn take(&mut self, input: Input, defined: bool, rules: &Counters) -> u8 {
        self.take_at(Duration::ZERO, input, defined, rules)
    }

    fn take_at(&mut self, at: Duration, input: Input, defined: bool, rules: &Counters) -> u8 {
        if !matches!(input, Input::Records(_) | Input::Woke) {
            if matches!(input, Input::Fence(_)) {
                self.kept = None;
            }
            self.ask = None;
        }
        let (mut letters, mut inputs, mut effects) = (0, vec![input], Vec::new());
        while let Some(input) = inputs.pop() {
            self.machine.step(Now { at, wall: UnixMillis(0) }, input, &mut effects);
            for effect in effects.drain(..) {
                if let Effect::StoreLetter { letter, .. } = &effect {
                    letters |= 1 << letter.offset.0;
                }
                inputs.extend(self.carry_out(effect, defined, rules));
            }
        }
        letters
    }

    fn carry_out(&mut self, effect: Effect, defined: bool, rules: &Counters) -> Option<Input> {
        match effect {
            Effect::ReadFence => {
                self.stale = defined;
                self.ask = Some(Ask::Fence);
            }
            Effect::ReadLog => self.ask = Some(Ask::Log),
            Effect::CreateFence(fence) => self.ask = Some(Ask::Create(fence)),
            Effect::ReplaceFences { seen, by, .. } => {
                self.ask = Some(Ask::Replace { seen: seen.first().clone(), by: by.first().clone() });
            }
            Effect::ReadDefinitions if !rules.obeys(Rule::ListAfterRecord) => {
                return Some(Input::Definitions(Ok(definitions(self.stale))));
            }
            Effect::ReadDefinitions => self.ask = Some(Ask::Definitions),
            Effect::ReadCells { .. } => self.ask = Some(Ask::Cells),
            Effect::Commit(transaction) => self.ask = Some(Ask::Commit(Request::of(&transaction, rules))),
            Effect::ReadAnnounced => return Some(Input::Announced(Ok(0))),
            Effect::CountPartitions => return Some(Input::Partitions(Ok(1))),
            Effect::RecallPartitions(partitions) => return Some(Input::FirstSeen(Ok(partitions))),
            Effect::StartAt(offset) => {
                self.at = usize::try_from(offset.0).expect("a log is short");
                return Some(Input::Started(Ok(())));
            }
            Effect::StoreLetter { letter, .. } => return Some(Input::LetterStored(letter)),
            Effect::BackOff { lane, .. } => return Some(Input::Waited(lane)),
            Effect::Rest(_) => return Some(Input::Waited(None)),
            Effect::ReadMaps { .. } | Effect::Locate { .. } | Effect::Spread { .. } => {
                unreachable!("no map was announced")
            }
            Effect::Note(_) | Effect::TellKafka(_) | Effect::Left { .. } => {}
        }
        None
    }

    /// Reads the records up to `to`, which were polled together; what it has then is due.
    pub(super) fn read(&mut self, log: &[Said], to: usize, defined: bool, rules: &Counters) -> u8 {
        let mut records = Records::default();
        for (offset, said) in log.iter().enumerate().take(to).skip(self.at) {
            let value = match said {
                Said::Like => r#"{"post_id":"p","user_id":"u","action":"like"}"#.to_owned(),
                Said::Vote(n) => {
                    let action = if *n < 0 { "down" } else { "up" };
                    format!(r#"{{"post_id":"p","action":"{action}","n":{}}}"#, n.unsigned_abs())
                }
                Said::Never => r#"{"post_id":"p","user_id":"u","action":"love"}"#.to_owned(),
                Said::Later => r#"{"post_id":"p","user_id":"u","action":"retweet"}"#.to_owned(),
            };
            records.push(Offset(offset as u64), UnixMillis(0), None, Some(value.as_bytes()), []);
        }
        let letters = self.take(Input::Records(Ok(Arc::new(records))), defined, rules);
        self.at = to;
        letters | self.take_at(AGE, Input::Woke, defined, rules)
    }
}
