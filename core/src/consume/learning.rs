//! The definitions that a partition is read by, and how it comes to more of them.
//!
//! A record is decoded by the definitions that the fence states, and by no others: so every worker decodes it alike. Where
//! none of them has its action, the deployment's list is read, after the record was polled: an action that was defined before it
//! was said is in that list. If the list has it, the fence is made to state the whole list; if not, the record is rejected, and so
//! is every other one polled by then whose action the list lacks.

use crate::definitions::Definitions;
use crate::fence::Offset;

/// What is in force, what is known beside it, and what is being done about the difference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Learning {
    /// All that the fence states.
    stated: Definitions,
    /// Of these, what is said in the partition's topic.
    here: Definitions,
    /// Records before this one were polled before the list was read last.
    settled: Offset,
    /// What that list has for this topic. It may have more than is in force: not every action that a record lacks is none.
    listed: Definitions,
    topic: Box<str>,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// The list is being read for a record that has this action, and so for all that were polled by then.
    Asking {
        action: Box<str>,
        polled: Offset,
        tries: u32,
    },
    /// The list has the action, and so many entries.
    Wanted(u32),
}

impl Learning {
    /// Records before `furthest` were settled: some lane has passed them, as none does before that.
    pub(super) fn new(stated: Definitions, topic: &str, furthest: Offset) -> Self {
        let here = stated.said_in(topic);
        Self { stated, listed: here.clone(), here, settled: furthest, topic: topic.into(), stage: Stage::Idle }
    }

    /// What a record is decoded by.
    pub(super) fn definitions(&self) -> &Definitions {
        &self.here
    }

    /// Whether `action`, which is not in force, is known to be none for a record at `offset`.
    pub(super) fn is_settled(&self, offset: Offset, action: &str) -> bool {
        offset < self.settled && self.listed.acted_on(action).is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    pub(super) fn asks(&self) -> bool {
        matches!(self.stage, Stage::Asking { .. })
    }

    /// The list is read for `action`; every record before `polled` was polled by now.
    pub(super) fn ask(&mut self, action: Box<str>, polled: Offset) {
        self.stage = Stage::Asking { action, polled, tries: 0 };
    }

    /// The list could not be read: how often that has been so.
    pub(super) fn failed(&mut self) -> u32 {
        let Stage::Asking { tries, .. } = &mut self.stage else { return 1 };
        *tries = tries.saturating_add(1);
        *tries
    }

    /// Takes in the list that was read.
    pub(super) fn learnt(&mut self, list: &Definitions) -> Result<(), String> {
        let Stage::Asking { action, polled, .. } = &self.stage else { return Ok(()) };
        if !self.stated.precede(list) {
            return Err("the counters in `config` are not those that the fence states, and more: \
                        was it put back to an older state"
                .to_owned());
        }
        let listed = list.said_in(&self.topic);
        self.stage = if listed.acted_on(action).is_some() {
            Stage::Wanted(list.count())
        } else {
            self.settled = self.settled.max(*polled);
            Stage::Idle
        };
        self.listed = listed;
        Ok(())
    }

    /// How many entries the fence is to state, once the batch before it is written.
    pub(super) fn wanted(&self) -> Option<u32> {
        if let Stage::Wanted(count) = self.stage { Some(count) } else { None }
    }
}
