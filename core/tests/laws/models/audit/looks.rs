//! Looks at row keys in doubt, and what the world of an audit answers them.

use super::*;

/// What a world knows of a look that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LookedAt {
    /// The counter before the rows, once it is read.
    before: Option<Counted>,
    /// Changes up to the checkpoint when the trail began.
    trail: usize,
}

impl Audits {
    pub(super) fn doubted(&self, state: &mut State, process: usize, doubts: Vec<(RowKey, Doubt)>) {
        let follow_up = FollowUp::new(doubts, Duration::ZERO, false);
        self.tell_follow_up(state, process, follow_up, FollowUpInput::Begin, LookedAt::default());
    }

    fn tell_follow_up(
        &self,
        state: &mut State,
        process: usize,
        mut follow_up: FollowUp,
        input: FollowUpInput,
        look: LookedAt,
    ) {
        let mut effects = Vec::new();
        follow_up.step(state.now(), input, &mut effects);
        for effect in effects {
            match effect {
                FollowUpEffect::Proved(keys) | FollowUpEffect::Confirmed(keys) => state.proved(process, keys),
                FollowUpEffect::End(unsettled) => return self.segment_done(state, process, unsettled),
                asked => {
                    let follow_up = follow_up.clone();
                    state.processes[process].doing = Doing::Follow { follow_up, asked, look };
                }
            }
        }
    }

    pub(super) fn follow(
        &self,
        state: &State,
        process: usize,
        follow_up: &FollowUp,
        asked: &FollowUpEffect,
        look: LookedAt,
        next: &mut Vec<(Step, State)>,
    ) {
        let key = state.processes[process].key();
        let tell = |mut state: State, input, look| {
            self.tell_follow_up(&mut state, process, follow_up.clone(), input, look);
            state
        };
        let step = Step::Follow { process };
        match asked {
            FollowUpEffect::BeginTrail => {
                let look = LookedAt { before: None, trail: state.checkpoint };
                next.push((step, tell(state.clone(), FollowUpInput::TrailBegun, look)));
            }
            FollowUpEffect::ReadCounters(_) => {
                let counted = self.look_at_counter(state.counters[key], look);
                let counter = FollowUpInput::Counter(Ok(Some(self.counter(key, counted))));
                let look = LookedAt { before: look.before.or(Some(counted)), ..look };
                next.push((step, tell(state.clone(), counter, look)));
            }
            FollowUpEffect::CountRows(_) => {
                let rows = FollowUpInput::Rows(vec![rows_read(&Self::rows(state, key))]);
                next.push((step, tell(state.clone(), rows, look)));
            }
            FollowUpEffect::AwaitApplied(past) => {
                let as_of = self.as_of(state, *past);
                let applied = |as_of| tell(state.clone(), FollowUpInput::Applied(Some(as_of)), look);
                next.extend(as_of.map(|as_of| (step, applied(as_of))));
            }
            FollowUpEffect::ReadTrail(of) => {
                let touched = of.iter().map(|(_, marks)| self.touched(state, key, marks, look));
                let touched = FollowUpInput::Touched(touched.collect());
                next.push((step, tell(state.clone(), touched, look)));
            }
            FollowUpEffect::Repair(_) => {
                let of = self.keys[key].clone();
                let mut repaired = state.clone();
                let drift = state.drift(key);
                repaired.counters[key].rows -= drift;
                repaired.counters[key].version += 1;
                let became = if drift == 0 { Repaired::Proved } else { Repaired::Corrected };
                let repaired = tell(repaired, FollowUpInput::Repaired(of.clone(), became), look);
                next.push((Step::Repair { process }, repaired));
                if state.left.failures > 0 {
                    let mut failed = state.clone();
                    failed.left.failures -= 1;
                    let left = tell(failed, FollowUpInput::Repaired(of, Repaired::Left), look);
                    next.push((Step::LeaveUnrepaired { process }, left));
                }
            }
            other => panic!("nothing in this world answers {other:?}"),
        }
    }

    /// The counter as a look sees it; a mutant takes it for still, or goes by what it was before.
    fn look_at_counter(&self, now: Counted, look: LookedAt) -> Counted {
        let Some(before) = look.before else { return now };
        let version = if self.obeys(Rule::VersionCompared) { now.version } else { before.version };
        let rows = if self.obeys(Rule::LastCounter) { now.rows } else { before.rows };
        Counted { rows, version, ..now }
    }

    /// What a trail that began where `look` says has of `key`.
    fn touched(&self, state: &State, key: usize, marks: &Watermarks, look: LookedAt) -> Option<Touched> {
        let begin = if self.obeys(Rule::TrailBeforeRows) { look.trail } else { state.checkpoint };
        let mut trail = Trail::begin(&state.lineage_at(begin));
        let (read, marks) = match trail.covers(marks) {
            Ok(()) if self.obeys(Rule::TrailCut) => (begin, marks.clone()),
            // What it does not say is missing, a mutant takes for nothing.
            Err(_) if !self.obeys(Rule::TrailRead) => (begin, Watermarks::default()),
            _ if !self.obeys(Rule::TrailCut) => {
                let all = state.stream.len();
                (all, Watermarks::new([(SHARD, position(all))].into(), None))
            }
            _ => (state.stream.len(), marks.clone()),
        };
        trail.take(SHARD, &self.records(state, begin..read)).expect("every position is readable");
        let mut touched = trail.touched(&self.keys[key], &marks)?;
        if !self.obeys(Rule::InTheirPlace) {
            let gained = state.stream[begin..read].iter().filter(|(of, _)| *of == key);
            let gained = gained.map(|(_, liked)| if *liked { 1 } else { -1 }).sum();
            touched = Touched::default();
            touched.insert(member("added"), Weight::new(gained).expect("a small weight"));
        }
        Some(touched)
    }

    fn records(&self, state: &State, of: std::ops::Range<usize>) -> Vec<RawRecord> {
        let image = |is: bool| is.then(Image::default);
        let record = |change: usize| {
            let (key, liked) = state.stream[change];
            RawRecord {
                sequence: position(change + 1).to_string(),
                pk: Some(self.keys[key].to_string()),
                sort: Some("1".to_owned()),
                before: image(!liked),
                after: image(liked),
                ..RawRecord::default()
            }
        };
        of.map(record).collect()
    }
}

fn member(name: &str) -> MemberKey {
    MemberKey::new(name).expect("a member")
}

/// Rows, each of one character.
fn rows_read(sorts: &[String]) -> RowsRead {
    let rows: Vec<_> = sorts.iter().map(|sort| (member(sort), Weight::ONE)).collect();
    let mut roster = Roster::new(|sort| sort.bytes().fold(0, |print, byte| print << 8 | u128::from(byte)));
    roster.extend(&rows);
    roster.seal();
    RowsRead { rows: rows.len() as u64, weight: rows.len() as i128, roster: Some(roster) }
}
