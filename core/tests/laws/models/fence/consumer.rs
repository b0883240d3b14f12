//! A consumer of the model: the real machine, and what of its effects is under way. What another process can see or
//! change is a step of its own; everything else is answered at once.

use std::sync::Arc;
use std::time::Duration;

use tally_core::batch::BatchLimits;
use tally_core::consume::{Consume, Effect, Input, LanePolicy, Leave, Letter, Note, Setup};
use tally_core::definitions::Definitions;
use tally_core::event::{Action, KeyScheme, LikeEvent};
use tally_core::fault::Fault;
use tally_core::fence::{Fence, Log, Offset, Partition};
use tally_core::ids::{LaneCount, PostId, ShardCount, UserId};
use tally_core::ports::log::Records;
use tally_core::time::{Now, UnixMillis};

use super::table::{Place, Request, UNWELCOME, topic};
use super::{Consumers, Ending, Life, Rule, Said};

const AGE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Consumer {
    pub(super) machine: Consume,
    /// What it has asked for and waits for.
    pub(super) ask: Option<Ask>,
    /// Dead letters under way. Also those from before a load, whose acknowledgement comes late.
    pub(super) letters: Vec<(Place, Arc<Letter>)>,
    /// Which life of the topic it reads, and where.
    pub(super) life: Life,
    pub(super) at: u64,
    mutant: Mutant,
}

/// What only mutants remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Mutant {
    /// The transaction whose outcome is not known, and whether it was sent again under another fence.
    kept: Option<Request>,
    kept_is_sent: bool,
    /// The fence that is stored, where the machine was told of another.
    stored: Option<Fence>,
    /// The `cfg` of the fence that is read from.
    cfg: u64,
}

/// What the machine asks of what consumers share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Fence,
    Log,
    Create(Fence),
    Commit(Request),
}

impl Consumer {
    pub(super) fn assigned(life: Life, rules: &Consumers) -> Self {
        let limits = BatchLimits { rows: 4, bytes: usize::MAX, age: AGE };
        let partition = Partition { topic: topic().0, index: 0 };
        let machine = Consume::new(Setup {
            partition,
            limits,
            key: KeyScheme::Post,
            shards: ShardCount::DEFAULT,
            lanes: LanePolicy::Pinned(LaneCount::ONE),
        });
        let mut consumer = Self { machine, ask: None, letters: Vec::new(), life: 0, at: 0, mutant: Mutant::default() };
        consumer.take(Input::Assigned, life, rules);
        consumer
    }

    /// The machine is told `input`, and what it asks for is carried out as far as no other process sees it. `life` is the
    /// topic's now.
    pub(super) fn take(&mut self, input: Input, life: Life, rules: &Consumers) {
        self.take_at(Duration::ZERO, input, life, rules);
    }

    fn take_at(&mut self, at: Duration, input: Input, life: Life, rules: &Consumers) {
        if matches!(input, Input::Fence(_) | Input::Log(_) | Input::FenceStored(_) | Input::Committed(..)) {
            self.ask = None;
        }
        if self.mutant.kept_is_sent {
            // Its machine knows nothing of that transaction.
            return *self = Self::assigned(life, rules);
        }
        let (mut inputs, mut effects) = (vec![input], Vec::new());
        while let Some(input) = inputs.pop() {
            self.machine.step(Now { at, wall: UnixMillis(0) }, input, &mut effects);
            for effect in effects.drain(..) {
                if let Effect::Left { .. } = effect {
                    return *self = Self::assigned(life, rules);
                }
                inputs.extend(self.carry_out(effect, life, rules));
            }
        }
    }

    /// Carries out `effect`; its answer, where that comes at once.
    fn carry_out(&mut self, effect: Effect, life: Life, rules: &Consumers) -> Option<Input> {
        match effect {
            Effect::ReadFence => {
                self.ask = Some(Ask::Fence);
                self.loads(life, rules);
            }
            Effect::ReadLog => self.ask = Some(Ask::Log),
            Effect::CreateFence(fence) => self.ask = Some(Ask::Create(fence)),
            Effect::ReplaceFences { .. } => unreachable!("this broker tells no topic ids, and nothing is defined"),
            Effect::ReadDefinitions => return Some(Input::Definitions(Ok(Definitions::likes_alone()))),
            Effect::ReadCells { .. } => unreachable!("there are no sums"),
            Effect::ReadMaps { .. } | Effect::Locate { .. } | Effect::Spread { .. } => {
                unreachable!("no map was announced")
            }
            Effect::ReadAnnounced => return Some(Input::Announced(Ok(0))),
            Effect::CountPartitions => return Some(Input::Partitions(Ok(1))),
            Effect::RecallPartitions(partitions) => return Some(Input::FirstSeen(Ok(partitions))),
            Effect::StartAt(offset) => {
                if rules.obeys(Rule::StartAnew) || self.at == 0 {
                    self.at = offset.0;
                }
                return Some(Input::Started(Ok(())));
            }
            Effect::Commit(transaction) => {
                let mut advance = transaction.advance;
                if let Some(stored) = &self.mutant.stored {
                    advance.from = stored.clone();
                }
                self.ask = Some(Ask::Commit(Request { advance, batch: transaction.batch }));
            }
            Effect::StoreLetter { letter, .. } => {
                if !rules.obeys(Rule::LetterFirst) {
                    return Some(Input::LetterStored(letter));
                }
                self.letters.push(((self.life, letter.offset.0), letter));
            }
            Effect::BackOff { lane, .. } => return Some(Input::Waited(lane)),
            Effect::Rest(_) => return Some(Input::Waited(None)),
            Effect::Note(Note::Reading(fences)) if !rules.obeys(Rule::LetterOfItsCfg) => {
                self.mutant.cfg = fences.cfg();
            }
            Effect::Note(_) | Effect::TellKafka(_) | Effect::Left { .. } => {}
        }
        None
    }

    /// A load begins.
    fn loads(&mut self, life: Life, rules: &Consumers) {
        // Only a mutant looks at the log before the fence is read, and only another one keeps its place.
        self.life = if rules.obeys(Rule::FenceFirst) { 0 } else { life };
        if rules.obeys(Rule::StartAnew) {
            self.at = 0;
        }
    }

    /// Answers the reading of the fence.
    pub(super) fn take_fence(&mut self, stored: Option<Fence>, life: Life, rules: &Consumers) {
        if let (Some(kept), Some(fence)) = (&self.mutant.kept, &stored) {
            // The mutant sends its old batch under the fence as it is now.
            let mut request = kept.clone();
            request.advance.from = fence.clone();
            self.ask = Some(Ask::Commit(request));
            self.mutant = Mutant { kept_is_sent: true, ..Mutant::default() };
            return;
        }
        let told = if rules.obeys(Rule::StartAtFence) {
            stored
        } else {
            self.mutant.stored.clone_from(&stored);
            // Kafka is told now and then, so it may never have been told.
            stored.map(|fence| Fence { offset: Offset(0), ..fence })
        };
        self.take(Input::Fence(Ok(told.map(Into::into))), life, rules);
    }

    /// What the broker says of the log; what is read is the topic as it is at this moment.
    pub(super) fn look(&mut self, lives: &[Vec<Said>; 2], life: Life, rules: &Consumers) {
        if rules.obeys(Rule::FenceFirst) {
            self.life = life;
        }
        let log = Log { topic: topic(), start: Offset(0), end: Offset(lives[self.life].len() as u64) };
        self.take(Input::Log(Ok(log)), life, rules);
    }

    /// Reads the records of `log` up to `to`, until `ending`.
    pub(super) fn read(&mut self, log: &[Said], to: u64, ending: Ending, life: Life, rules: &Consumers) {
        let from = self.at;
        for (offset, said) in (0..to).zip(log).skip_while(|(offset, _)| *offset < from) {
            let mut records = Records::default();
            records.push(Offset(offset), UnixMillis(offset), None, Some(&value(*said)), []);
            self.take(Input::Records(Ok(Arc::new(records))), life, rules);
        }
        self.at = to;
        let input = match ending {
            Ending::Due => Input::Woke,
            Ending::Stopped => Input::Leave(Leave::Stopping),
            Ending::Unreadable => Input::Records(Err(Fault::Transient("no such offset".to_owned()))),
        };
        self.take_at(AGE, input, life, rules);
    }

    /// The outcome of `request` is not known, and will not be.
    pub(super) fn times_out(&mut self, request: &Request, rules: &Consumers) {
        if !rules.obeys(Rule::ReloadAfterUnknown) {
            self.mutant.kept = Some(request.clone());
        }
    }

    /// The dead-letter topic acknowledges `letter`.
    pub(super) fn take_letter(&mut self, letter: &Letter, life: Life, rules: &Consumers) {
        let cfg = if rules.obeys(Rule::LetterOfItsCfg) { letter.cfg } else { self.mutant.cfg };
        self.take(Input::LetterStored(Arc::new(Letter { cfg, ..letter.clone() })), life, rules);
    }
}

/// A record's value.
fn value(said: Said) -> Vec<u8> {
    let event = |user: u8, action| {
        let (post, user) = (PostId::new("p").expect("an id"), UserId::new(&user.to_string()).expect("an id"));
        LikeEvent::new(&post, &user, action, UnixMillis(1)).encode()
    };
    match said {
        Said::Event(user, action) => event(user, action),
        Said::Unwelcome => event(UNWELCOME, Action::Like),
        Said::Poison => b"{".to_vec(),
    }
}
