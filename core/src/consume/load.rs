//! From an assignment to a position: the fence first, then the log, then where to read; a call that fails for a while is
//! sent again.

use super::effect::{Effect, Halt, Input, Note, Replacing};
use crate::definitions::Definitions;
use crate::fence::{self, Fence, Fences, Load, Log, Partition};

/// One load under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loading {
    call: Call,
    /// How often the call has failed.
    tries: u32,
    /// The call failed and is sent again after the wait.
    waits: bool,
}

/// The call that is under way, with what is known when it is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Call {
    Fence,
    Log(Option<Fences>),
    /// Before a fence is created.
    Count(Log),
    FirstSeen {
        log: Log,
        partitions: u32,
    },
    CreateFence(Fence),
    NameTopic {
        seen: Fences,
        told: Fences,
    },
    Definitions(Fences),
    Announced(Fences, Definitions),
    Partitions(Fences, Definitions, u64),
    StartAt(Ready),
}

/// What is known once a partition can be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ready {
    /// Records are read from the least of these on.
    pub(super) fences: Fences,
    /// By what they are decoded.
    pub(super) definitions: Definitions,
    /// How often changes of maps were announced.
    pub(super) announced: u64,
    /// How many partitions the topic has.
    pub(super) partitions: u32,
}

/// What an answer comes to.
pub(super) enum Loaded {
    NotYet,
    /// Records are read.
    From(Ready),
    Halt(Halt),
}

/// What follows a call that succeeded.
enum Next {
    Ask(Call),
    Read(Ready),
    Halt(Halt),
}

impl Loading {
    /// Asks for the fence.
    pub(super) fn begin(effects: &mut Vec<Effect>) -> Self {
        let loading = Self { call: Call::Fence, tries: 0, waits: false };
        effects.push(loading.call.effect());
        loading
    }

    /// Takes in an answer; one that was not waited for changes nothing.
    pub(super) fn answered(&mut self, answer: Input, partition: &Partition, effects: &mut Vec<Effect>) -> Loaded {
        if self.waits {
            return Loaded::NotYet;
        }
        let next = match (&self.call, answer) {
            (Call::Fence, Input::Fence(stored)) => stored.map(|stored| after_fence(stored, effects)),
            (Call::Log(stored), Input::Log(log)) => log.map(|log| after_log(stored.clone(), &log, partition)),
            (Call::Count(log), Input::Partitions(count)) => {
                count.map(|partitions| Next::Ask(Call::FirstSeen { log: log.clone(), partitions }))
            }
            (Call::FirstSeen { log, .. }, Input::FirstSeen(first)) => {
                first.map(|first| Next::Ask(Call::CreateFence(fence::first(log, partition.index, first))))
            }
            (Call::CreateFence(_) | Call::NameTopic { .. }, Input::FenceStored(done)) => {
                done.map(|()| Next::Ask(Call::Fence))
            }
            (Call::Definitions(fences), Input::Definitions(list)) => list.map(|list| after_definitions(fences, &list)),
            // Behind the fence: a map that a writer before this one has used was announced before that one wrote.
            (Call::Announced(fences, definitions), Input::Announced(times)) => {
                times.map(|times| Next::Ask(Call::Partitions(fences.clone(), definitions.clone(), times)))
            }
            (Call::Partitions(fences, definitions, announced), Input::Partitions(count)) => {
                let (fences, definitions, announced) = (fences.clone(), definitions.clone(), *announced);
                count.map(|partitions| Next::Ask(Call::StartAt(Ready { fences, definitions, announced, partitions })))
            }
            (Call::StartAt(ready), Input::Started(done)) => done.map(|()| Next::Read(ready.clone())),
            _ => return Loaded::NotYet,
        };
        match next {
            Ok(Next::Ask(call)) => {
                effects.push(call.effect());
                (self.call, self.tries) = (call, 0);
                Loaded::NotYet
            }
            Ok(Next::Read(ready)) => Loaded::From(ready),
            Ok(Next::Halt(halt)) => Loaded::Halt(halt),
            Err(fault) if fault.is_retryable() => {
                self.tries = self.tries.saturating_add(1);
                self.waits = true;
                let (call, class, tries) = (self.call.name(), fault.class(), self.tries);
                effects.push(Effect::Note(Note::Retrying { call, class, tries, why: fault.to_string() }));
                effects.push(Effect::BackOff { lane: None, attempt: tries - 1 });
                Loaded::NotYet
            }
            Err(fault) => Loaded::Halt(Halt::Refused(format!("{}: {fault}", self.call.name()))),
        }
    }

    /// The wait is over: the same call again. Each of them is safe to repeat.
    pub(super) fn waited(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.waits) {
            effects.push(self.call.effect());
        }
    }
}

/// Every call that may be tried again, as a metric label: those here, those of a lane, `commit`, `write` of rows with versions, and `keep` of a claim.
pub const CALLS: &[&str] = &[
    "fence",
    "log",
    "create_fence",
    "name_topic",
    "first_seen",
    "definitions",
    "announced",
    "partitions",
    "start_at",
    "maps",
    "locate",
    "cells",
    "commit",
    "write",
    "keep",
];

impl Call {
    /// The call, as a metric label: one of [`CALLS`].
    fn name(&self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Log(_) => "log",
            Self::Count(_) => "partitions",
            Self::FirstSeen { .. } => "first_seen",
            Self::CreateFence(_) => "create_fence",
            Self::NameTopic { .. } => "name_topic",
            Self::Definitions(_) => "definitions",
            Self::Announced(..) => "announced",
            Self::Partitions(..) => "partitions",
            Self::StartAt(_) => "start_at",
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Fence => Effect::ReadFence,
            Self::Log(_) => Effect::ReadLog,
            Self::FirstSeen { partitions, .. } => Effect::RecallPartitions(*partitions),
            Self::CreateFence(fence) => Effect::CreateFence(fence.clone()),
            Self::NameTopic { seen, told } => {
                Effect::ReplaceFences { seen: seen.clone(), by: told.clone(), why: Replacing::TopicNamed }
            }
            Self::Definitions(_) => Effect::ReadDefinitions,
            Self::Count(_) | Self::Partitions(..) => Effect::CountPartitions,
            Self::Announced(..) => Effect::ReadAnnounced,
            Self::StartAt(ready) => Effect::StartAt(ready.fences.least().offset),
        }
    }
}

/// Only now is the log asked for: one read before the fence may be that of another topic.
fn after_fence(stored: Option<Fences>, effects: &mut Vec<Effect>) -> Next {
    if let Some(fences) = &stored {
        // Before the log is asked: a partition that gets no further is behind all the same.
        effects.push(Effect::Note(Note::Loaded(fences.clone())));
    }
    Next::Ask(Call::Log(stored))
}

fn after_log(stored: Option<Fences>, log: &Log, partition: &Partition) -> Next {
    if let Some((seen, told)) = stored.as_ref().and_then(|seen| Some((seen, told_since(seen, partition, log)?))) {
        return Next::Ask(Call::NameTopic { seen: seen.clone(), told });
    }
    match fence::load(stored, log) {
        Load::Create => Next::Ask(Call::Count(log.clone())),
        Load::Resume(fences) if fences.terms().defs > 0 => Next::Ask(Call::Definitions(fences)),
        Load::Resume(fences) => Next::Ask(Call::Announced(fences, Definitions::likes_alone())),
        Load::Halt(alarm) => Next::Halt(Halt::Alarm(alarm)),
    }
}

/// Takes the definitions that the fence states. Entries that were added to the list since then are not in force in this
/// partition yet.
fn after_definitions(fences: &Fences, list: &Definitions) -> Next {
    let stated = fences.terms().defs;
    match list.first(stated) {
        Some(definitions) => Next::Ask(Call::Announced(fences.clone(), definitions)),
        None => Next::Halt(Halt::Refused(format!(
            "the fence states {stated} counters, but `config` defines {}: was it put back to an older state",
            list.iter().len()
        ))),
    }
}

/// The fences with the topic's id, where they were written when the broker told none and the topic's name stood for it. The
/// other way round is an alarm: a broker that has told ids does not stop.
fn told_since(seen: &Fences, partition: &Partition, log: &Log) -> Option<Fences> {
    let named = |topic: &str| *topic == *partition.topic;
    let told = named(&seen.topic().0) && !named(&log.topic.0);
    told.then(|| seen.reset(&log.topic, seen.terms(), |fence| fence.offset))
}
