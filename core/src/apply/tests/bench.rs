//! A machine on a bench: its inputs one by one, what it asks for and what it tells.

use super::*;

/// A machine, and what it has asked for and not been answered.
pub(super) struct Bench {
    pub(super) machine: Apply,
    pub(super) now: Duration,
    pub(super) asked: Vec<(RequestId, Request)>,
    pub(super) told: Vec<Effect>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(RULES, Picture::default())
    }

    pub(super) fn with(rules: Rules, picture: Picture) -> Self {
        let checkpoint = Checkpoint {
            id: "shard-5".into(),
            parent: None,
            ordinal: SHARD,
            sequence: None,
            closed: false,
            at: UnixMillis(1_000),
        };
        let machine = Apply::new(&checkpoint, rules, Arc::new(picture), Now::default());
        Self { machine, now: Duration::ZERO, asked: Vec::new(), told: Vec::new() }
    }

    pub(super) fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.machine.step(Now { at: self.now, ..BEGAN }, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Ask(id, request) => self.asked.push((id, request)),
                told => self.told.push(told),
            }
        }
    }

    pub(super) fn read(&mut self, records: &[Record]) {
        self.step(Input::Records(records.to_vec()));
    }

    /// Lets what is gathered grow old enough.
    pub(super) fn age(&mut self) {
        self.now += RULES.cut.age;
        self.step(Input::Woke);
    }

    /// Answers the request asked for first.
    pub(super) fn answer(&mut self, answer: Answer) {
        let (id, _) = self.asked.remove(0);
        self.step(Input::Answered(id, answer));
    }

    pub(super) fn take(&mut self, counter: Counter) {
        self.answer(Answer::Updated(Ok(Applied::Taken(counter))));
    }

    pub(super) fn refuse(&mut self, counter: Counter) {
        self.answer(Answer::Updated(Ok(Applied::Refused(Some(counter)))));
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        self.answer(Answer::Updated(Err(fault)));
    }

    /// The only update that is unanswered.
    pub(super) fn update(&self) -> &Update {
        match &self.asked[..] {
            [(_, Request::Update { update, .. })] => update,
            other => panic!("not one update: {other:?}"),
        }
    }

    /// The only request that is unanswered.
    pub(super) fn request(&self) -> &Request {
        match &self.asked[..] {
            [(_, request)] => request,
            other => panic!("not one request: {other:?}"),
        }
    }

    /// Answers everything as a store without other writers would, until nothing is asked for.
    pub(super) fn settle(&mut self) {
        while let Some((_, request)) = self.asked.first() {
            match request {
                Request::Update { update, .. } => self.take(Counter::default().updated(&update.clone()).unwrap()),
                Request::MarkSuspect(_) => self.answer(Answer::Marked(true)),
                Request::ReadCounter(_) => self.answer(Answer::Read(None)),
                Request::PutReport { .. } => self.answer(Answer::Reported(Ok(()))),
                _ => self.answer(Answer::Done),
            }
        }
    }

    pub(super) fn is_told(&self, wanted: &Effect) -> bool {
        self.told.contains(wanted)
    }
}
